"""Names for scales about another point than 0, as of `LN(x + W x)`, which sees the direction of I + W."""

import torch
from torch import Tensor

from normgeom.symmetry.discovery.algebra import Algebra
from normgeom.symmetry.discovery.layout import Described, Layout, symbol
from normgeom.symmetry.discovery.readable import Independent
from normgeom.symmetry.discovery.scales import by_index, whole_parameters


def name_centred_scales(layout: Layout, algebra: Algebra, picked: Independent) -> list[Described]:
    """Return the scales of rows, columns and whole parameters about a point, of those that are new."""
    groups = dict[tuple[str, str], list[Tensor]]()
    for pattern, exponents in (*by_index(layout), *whole_parameters(layout)):
        field = _about_a_point(layout, algebra, pattern.parts[0][0], exponents)
        if field is not None and picked.adds(algebra.coordinates(field[None])[0] / field.norm()):
            groups.setdefault((pattern.kind, pattern.parts[0][0]), []).append(field)
    return [
        Described(f"{kind} about a point", *_written(layout, name, torch.stack(fields)), torch.stack(fields))
        for (kind, name), fields in groups.items()
    ]


def _about_a_point(layout: Layout, algebra: Algebra, name: str, exponents: Tensor) -> Tensor | None:
    """The field `s * (w - C)` with the simplest C for which it lies in the algebra, None if there is none."""
    scaling = layout.scaling(exponents)
    entries = exponents.nonzero()[:, 0]
    constants = torch.stack([layout.constant(one) for one in torch.eye(layout.size).double()[entries]])
    seen = algebra.seen(constants).T
    least = torch.linalg.lstsq(seen, -algebra.seen(scaling[None])[0], driver="gelsd").solution
    for offset in (_identity(layout, name)[entries], least):
        field = scaling + torch.einsum("k,kij->ij", offset, constants)
        if bool(algebra.contains(field[None])[0]):
            return field
    return None


def _identity(layout: Layout, name: str) -> Tensor:
    """Ones on the diagonal of a square parameter: where a residual branch has its centre, -I."""
    shape, vector = layout.shapes[name], torch.zeros(layout.size, dtype=torch.float64)
    if len(shape) == 2 and shape[0] == shape[1]:
        vector[layout.part(name)] = torch.eye(shape[0], dtype=torch.float64).reshape(-1)
    return vector


def _written(layout: Layout, name: str, fields: Tensor) -> tuple[str, str]:
    offset = fields[:, :, -1].sum(0)
    tex = symbol(name)
    if bool(offset.any()) and torch.equal(offset, _identity(layout, name)):
        return f"{name} + I → c ({name} + I)", rf"{tex} + I \to c\,({tex} + I)"
    point = (-offset[layout.part(name)]).reshape(layout.shapes[name])
    rows = [
        [float(f"{v:.3g}") + 0.0 for v in row] for row in point.reshape(len(point) if point.ndim else 1, -1)
    ]
    return f"{name} − C → c ({name} − C), C = {rows}", rf"{tex} - C \to c\,({tex} - C)"
