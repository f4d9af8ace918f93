"""Scales that hold but for a constant, such as an eps inside a function, that larger weights make small."""

import torch

from normgeom.symmetry.discovery.algebra import Algebra
from normgeom.symmetry.discovery.layout import Described, Layout
from normgeom.symmetry.discovery.scales import named_scales
from normgeom.symmetry.discovery.subject import Subject

_SMALL = 1e-2
_GROWN, _FADES = 16.0, 8.0
_POINTS = 3


def nearly(subject: Subject, layout: Layout, algebra: Algebra, generator: torch.Generator) -> list[Described]:
    """Return the scales by name that are not in the algebra, but nearly, and the more so the larger w is."""
    found: list[Described] = []
    for described in named_scales(layout):
        if not bool(algebra.contains(described.fields).all()) and not _part_of(described, found):
            usual, grown = _seen(subject, described, generator)
            if usual <= _SMALL and grown <= usual / _FADES:
                found.append(described)
    return found


def _part_of(described: Described, found: list[Described]) -> bool:
    """Whether a whole scale is the sum of row scales that were found."""
    fields = described.fields.sum(0)
    return any(bool(torch.equal(fields, other.fields.sum(0))) for other in found)


def _seen(subject: Subject, described: Described, generator: torch.Generator) -> tuple[float, float]:
    """How much of the derivative is along the fields, `‖J V‖ / (‖J‖ ‖V‖)`, at usual and larger parameters."""
    worst = [0.0, 0.0]
    for _ in range(_POINTS):
        vector, data = subject.draw(generator)
        for k, point in enumerate((vector, _GROWN * vector)):
            jacobian = subject.jacobian(point, data, generator)
            values = described.fields[:, :, :-1] @ point + described.fields[:, :, -1]
            sizes = values.norm(dim=1) * torch.linalg.matrix_norm(jacobian, 2)
            worst[k] = max(worst[k], float(((jacobian @ values.T).norm(dim=0) / sizes).nan_to_num(1.0).max()))
    return worst[0], worst[1]
