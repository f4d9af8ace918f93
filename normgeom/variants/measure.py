"""Measuring what a yes or no in Table 1 hides: joint symmetries, and the law of an eps."""

from typing import Any

import torch

from normgeom.variants.variant import COLUMNS, Symmetry, Variant

UNITS, INPUTS, CASES = 5, 4, 7


def point(variant: Variant, *, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a Gaussian weight and data in float64, of the form and sizes that the layer takes.

    >>> from normgeom.variants import variant
    >>> [tuple(a.shape) for a in point(variant("group norm"), generator=torch.Generator())]
    [(6, 4), (7, 4)]
    """
    shapes = variant.convolution.shapes(variant.units or UNITS, variant.inputs or INPUTS, CASES)
    weight, data = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return weight, data


def unmet(variant: Variant, row: Any) -> list[str]:
    """Return what a row of verdicts on a layer says against its claims: nothing if they all hold.

    At eps = 0 an invariance up to eps must be one exactly, and every claimed whole degree must be found; with
    an eps, which blurs degrees, the kinds alone are compared.

    Args:
        variant: the layer, with the options at which it was checked.
        row: its six verdicts in the order of Table 1, as `ng.check` returns them.

    >>> import normgeom as ng
    >>> from normgeom.variants import variant
    >>> unmet(variant("softmax"), ng.check(variant("DyT")))
    ['WeightMatrixRecenter: claimed invariant, found not invariant']
    """
    found = []
    for column, claim, verdict in zip(COLUMNS, variant.claims, row, strict=True):
        bare = claim.holds and variant.eps == 0
        kind, degree = "invariant" if bare else claim.kind, claim.degree
        if verdict.kind != kind:
            found.append(f"{column}: claimed {kind}, found {verdict.kind}")
        elif variant.eps == 0 and verdict.degree != degree and (degree is None or degree == int(degree)):
            found.append(f"{column}: claimed degree {degree}, found {verdict.degree}")
    return found


def symmetry_error(
    variant: Variant, symmetry: Symmetry, weight: torch.Tensor, data: torch.Tensor, *, scale: float = 1.7
) -> float:
    """Return the largest change of an output under a joint symmetry, relative to the largest one, at eps = 0.

    Args:
        variant: the layer.
        symmetry: one of its `symmetries`, or any other to try.
        weight: as the layer takes it.
        data: as the layer takes it.
        scale: the c > 0 that the symmetry is drawn at.

    >>> from normgeom.variants import variant
    >>> dyt = variant("DyT")
    >>> symmetry_error(dyt, dyt.symmetries[0], torch.eye(2), torch.ones(1, 2), scale=2.0)
    0.0
    """
    bare = variant.with_eps(0.0)
    moved_weight, moved_data, options = symmetry.move(scale, weight, data, dict(bare.options))
    before = bare(weight, data)
    after = bare.with_options(**options)(moved_weight, moved_data)
    return float((after - before).abs().max() / before.abs().max())


def eps_law_error(
    variant: Variant, weight: torch.Tensor, data: torch.Tensor, *, scale: float = 1.7, eps: float = 0.5
) -> float:
    """Return how far `f(c W; c^p eps) = c^k f(W; eps)` is from true, relative to the largest output.

    p is the variant's `eps_power`; k and whether c multiplies W or X are read from its claims.

    Args:
        variant: the layer.
        weight: as the layer takes it.
        data: as the layer takes it.
        scale: c.
        eps: a value large enough to be felt.

    Raises:
        ValueError: if the variant states no law.

    >>> from normgeom.variants import variant
    >>> weight = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> data = torch.tensor([[1.0, 3.0], [2.0, 0.0]])
    >>> eps_law_error(variant("layer norm"), weight, data, scale=2.0) < 1e-6
    True
    """
    if variant.eps_power is None:
        raise ValueError(f"{variant.name} states no law of its eps.")
    weights, dataset = variant.claims["WeightMatrixRescale"], variant.claims["DatasetRescale"]
    by_data = dataset.holds and not weights.holds
    degree = 0.0 if by_data else weights.degree or 0.0
    moved = (weight, scale * data) if by_data else (scale * weight, data)
    before = variant.with_options(eps=eps)(weight, data)
    after = variant.with_options(eps=scale**variant.eps_power * eps)(*moved)
    return float((after - scale**degree * before).abs().max() / before.abs().max())
