"""The affine fields that a Jacobian does not see, as the null space of a linear system at random points.

A field `V(w) = A w + b` is a symmetry if `J(w) V(w) = 0` at every w and for all data. Each draw of (w, data)
gives rows `J ⊗ (w, 1)`. Constant directions u with `J u = 0` are found first: any affine function times u is
a field too, so they take `p + 1` dimensions each, and the rest is looked for across them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Draw = Callable[[], tuple[Tensor, Tensor]]
_FIRST, _CHECKS, _ROUNDS = 8, 4, 6
CLEAR = 1e3
_SPARE = 1.2
_REDRAWS, _ENOUGH = 5, 1e6


@dataclass(frozen=True, eq=False)
class Algebra:
    """All affine fields in the null space.

    Attributes:
        shifts: orthonormal constant directions, (p, u).
        across: an orthonormal basis of the directions perpendicular to them, (p, p - u).
        rest: orthonormal fields with values across, (k, (p - u)(p + 1)); none is a multiple of a shift.
        gap: the smallest singular value kept over the largest that counts as zero (rounding, if none does).
        tolerance: what counts as zero, relative to the largest.
    """

    shifts: Tensor
    across: Tensor
    rest: Tensor
    gap: float
    tolerance: float

    @property
    def size(self) -> int:
        """The number p of parameters."""
        return len(self.shifts)

    @property
    def dimension(self) -> int:
        """The number of independent fields."""
        return self.shifts.shape[1] * (self.size + 1) + len(self.rest)

    @property
    def fields(self) -> Tensor:
        """The fields of the rest as matrices (A, b), (k, p, p + 1)."""
        coefficients = self.rest.reshape(len(self.rest), self.across.shape[1], self.size + 1)
        return self.across @ coefficients

    def seen(self, fields: Tensor) -> Tensor:
        """Return what is not of these fields in others (k, p, p + 1): 0 for those in the algebra."""
        flat = (self.across.T @ fields).flatten(1)
        return flat - self.coordinates(fields) @ self.rest

    def coordinates(self, fields: Tensor) -> Tensor:
        """Return the coordinates of fields in the basis of the rest, (k, number of the rest)."""
        return (self.across.T @ fields).flatten(1) @ self.rest.T

    def contains(self, fields: Tensor) -> Tensor:
        """Return which of some fields (k, p, p + 1) lie in the algebra."""
        return self.seen(fields).norm(dim=1) <= self.loose * fields.flatten(1).norm(dim=1)

    @property
    def clear(self) -> bool:
        """Whether the gap is wide enough for the dimension to be read off without doubt."""
        return self.gap >= CLEAR

    @property
    def loose(self) -> float:
        """What counts as zero of what is computed from the Jacobians' row spaces."""
        return _loose(self.tolerance)


def _loose(tolerance: float) -> float:
    """What rounding makes of directions that were read off with this tolerance, which sharpens it."""
    return max(1e2 * tolerance, 1e-6)


def solve(draw: Draw, size: int, tolerance: float) -> Algebra:
    """Return the algebra of a Jacobian, drawn as (w, J) until new draws say nothing new.

    Args:
        draw: returns a parameter vector (p,) and rows that span the Jacobian's row space there.
        size: p.
        tolerance: singular values below this times the largest count as zero.
    """
    drawn = [_sharp(draw, tolerance) for _ in range(_FIRST)]
    found = _solved(drawn, size, tolerance)
    for _ in range(_ROUNDS):
        fresh = [_sharp(draw, tolerance) for _ in range(_CHECKS)]
        if _enough(drawn, found) and all(_annihilated(found, *sample[:2]) for sample in fresh):
            return found
        drawn += fresh
        drawn += [_sharp(draw, tolerance) for _ in range(_missing(drawn, found))]
        found = _solved(drawn, size, tolerance)
    return found


Sample = tuple[Tensor, Tensor, float]


def _sharp(draw: Draw, tolerance: float) -> Sample:
    """The first of a few draws at which the Jacobian's rank is clear, else the one at which it is clearest.

    Where a layer saturates, singular values that are not zero come near to rounding.
    """
    best = _sample(*draw(), tolerance)
    for _ in range(_REDRAWS):
        if best[2] >= _ENOUGH and len(best[1]):
            break
        best = max(best, _sample(*draw(), tolerance), key=lambda sample: (len(sample[1]) > 0, sample[2]))
    return best


def _sample(vector: Tensor, jacobian: Tensor, tolerance: float) -> Sample:
    """The point, orthonormal rows of the Jacobian's row space, and the gap that its rank was read from."""
    _, values, rows = torch.linalg.svd(jacobian, full_matrices=False)
    kept, gap = _split(values, tolerance, jacobian.shape)
    return vector, rows[:kept], gap


def _split(values: Tensor, tolerance: float, shape: torch.Size) -> tuple[int, float]:
    """How many descending singular values are kept, and the gap below them (infinite if none is kept).

    Rows are relative: where even the largest singular value is this small, all of them are rounding.
    """
    if not len(values) or float(values[0]) <= 10 * tolerance:
        return 0, float("inf")
    kept = int((values > tolerance * values[0]).sum())
    floor = float(values[0]) * torch.finfo(values.dtype).eps * max(shape)
    dropped = float(values[kept]) if kept < len(values) else 0.0
    return kept, float(values[kept - 1]) / max(dropped, floor)


def _solved(drawn: list[Sample], size: int, tolerance: float) -> Algebra:
    """The algebra that some draws leave."""
    across, shifts, first = _row_and_null_space(
        torch.cat([rows for _, rows, _ in drawn]), size, _loose(tolerance)
    )
    count = across.shape[1] * (size + 1)
    system = torch.cat([_rows(across, vector, rows) for vector, rows, _ in drawn])
    _, rest, second = _row_and_null_space(system, count, _loose(tolerance))
    gap = min(first, second, *(sample[2] for sample in drawn))
    return Algebra(shifts, across, rest.T.contiguous(), gap, tolerance)


def _row_and_null_space(matrix: Tensor, size: int, tolerance: float) -> tuple[Tensor, Tensor, float]:
    """Orthonormal columns that span the row space and the null space, and the gap."""
    if not matrix.numel():
        eye = torch.eye(size, dtype=torch.float64)
        return eye[:, :0], eye, float("inf")
    # The triangle has the same null space and is square, whatever the number of rows.
    triangle = torch.linalg.qr(matrix, mode="r").R if len(matrix) > size else matrix
    _, values, basis = torch.linalg.svd(triangle, full_matrices=True)
    kept, gap = _split(values, tolerance, matrix.shape)
    return basis[:kept].T, basis[kept:].T, gap


def _rows(across: Tensor, vector: Tensor, rows: Tensor) -> Tensor:
    """The rows `J ⊗ (w, 1)` of the system for fields with values across."""
    extended = torch.cat([vector, vector.new_ones(1)])
    return torch.kron(rows @ across, (extended / extended.norm())[None])


def _missing(drawn: list[Sample], found: Algebra) -> int:
    """How many draws more give as many rows as there are unknowns, and some to spare."""
    have = sum(len(rows) for _, rows, _ in drawn)
    each = have / len(drawn)
    unknowns = found.across.shape[1] * (found.size + 1) * _SPARE
    return max(math.ceil((unknowns - have) / each), 0) + _CHECKS if each else 0


def _enough(drawn: list[Sample], found: Algebra) -> bool:
    """Whether there are at least as many rows as it takes to leave only these fields."""
    return sum(len(rows) for _, rows, _ in drawn) >= found.across.shape[1] * (found.size + 1) - len(
        found.rest
    )


def _annihilated(found: Algebra, vector: Tensor, rows: Tensor) -> bool:
    """Whether a draw that was not used sees none of the fields and shifts."""
    system = _rows(found.across, vector, rows) @ found.rest.T
    return all(
        float(seen.abs().max()) <= found.loose for seen in (system, rows @ found.shifts) if seen.numel()
    )
