"""The zoo: the layers that researchers compare, one family a file, each with formula, source and claimed row.

>>> import normgeom as ng
>>> row = ng.check(variant("softmax"), [ng.WeightMatrixRecenter])
>>> row[0].label
'Invariant'
"""

from normgeom.variants import (
    attention,
    batch,
    cosine,
    group,
    hypersphere,
    layer,
    pointwise,
    residual,
    response,
    rms,
    weight,
)
from normgeom.variants.variant import COLUMNS, Claim, Claims, Symmetry, Variant

__all__ = ["COLUMNS", "VARIANTS", "Claim", "Claims", "Symmetry", "Variant", "variant"]

VARIANTS: tuple[Variant, ...] = (
    *batch.MEMBERS,
    *layer.MEMBERS,
    *rms.MEMBERS,
    *group.MEMBERS,
    *response.MEMBERS,
    *weight.MEMBERS,
    *cosine.MEMBERS,
    *pointwise.MEMBERS,
    *attention.MEMBERS,
    *residual.MEMBERS,
    *hypersphere.MEMBERS,
)


def variant(name: str) -> Variant:
    """Return the layer of the zoo with this name, as in `VARIANTS`.

    Raises:
        KeyError: if there is none, with the names that come close.

    >>> variant("DyT").formula
    'tanh(alpha a_i)'
    """
    import difflib

    named = {v.name: v for v in VARIANTS}
    if name not in named:
        lower = {n.lower(): n for n in named}
        close = [lower[n] for n in difflib.get_close_matches(name.lower(), lower, n=5, cutoff=0.4)]
        raise KeyError(f"no layer {name!r} in the zoo; close are: {', '.join(close) or 'none'}.")
    return named[name]
