"""All fields of an algebra in a readable basis: those with a name, then what is left."""

import torch
from torch import Tensor

from normgeom.symmetry.discovery.actions import mixing_family, name_actions, name_block_actions
from normgeom.symmetry.discovery.algebra import Algebra
from normgeom.symmetry.discovery.centres import name_centred_scales
from normgeom.symmetry.discovery.layout import Described, Layout
from normgeom.symmetry.discovery.readable import Independent, readable
from normgeom.symmetry.discovery.scales import name_scales
from normgeom.symmetry.discovery.shifts import name_shifts


def describe(layout: Layout, algebra: Algebra) -> list[Described]:
    """Return fields that span the algebra: shifts, actions, scales, then those without a name."""
    picked = Independent(len(algebra.rest))
    found = name_shifts(layout, algebra)
    for name in (name_actions, name_block_actions, name_scales, name_centred_scales, _linear, _affine):
        if picked.rank < len(algebra.rest):
            found += name(layout, algebra, picked)
    return found


def _linear(layout: Layout, algebra: Algebra, picked: Independent) -> list[Described]:
    """Linear fields that mix rows or columns and scale entries, in whole numbers where possible."""
    scalings = torch.stack([layout.scaling(e) for e in torch.eye(layout.size, dtype=torch.float64)])
    family = torch.cat([mixing_family(layout)[1], scalings])
    _, values, basis = torch.linalg.svd(algebra.seen(family).T)
    inside = readable(basis[int((values > algebra.loose).sum()) :])
    return _unnamed(layout, algebra, picked, torch.einsum("nk,kij->nij", inside, family))


def _affine(layout: Layout, algebra: Algebra, picked: Independent) -> list[Described]:
    """Whatever is left, up to multiples of the shifts."""
    rows = readable(algebra.fields.flatten(1))
    return _unnamed(layout, algebra, picked, rows.reshape(len(rows), layout.size, layout.size + 1))


def _unnamed(layout: Layout, algebra: Algebra, picked: Independent, fields: Tensor) -> list[Described]:
    found = []
    for field in fields:
        size = field.norm()
        if bool(algebra.contains(field[None])[0]) and picked.adds(algebra.coordinates(field[None])[0] / size):
            found.append(Described("unnamed", *layout.written(field), field[None], named=False))
    return found
