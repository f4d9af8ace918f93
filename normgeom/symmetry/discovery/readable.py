"""A basis that a person can read: in reduced echelon form, of whole numbers where it is rational."""

import math
from fractions import Fraction

import torch
from torch import Tensor

_PIVOT = 1e-6
_CLOSE = 1e-6
_DENOMINATOR = 12


def echelon(basis: Tensor) -> Tensor:
    """Return rows that span the same space, in reduced echelon form.

    >>> echelon(torch.tensor([[1.0, 1.0, 0.0], [1.0, 2.0, 1.0]]))
    tensor([[ 1.,  0., -1.],
            [ 0.,  1.,  1.]])
    """
    rows, done = basis.clone(), 0
    for column in range(rows.shape[1]):
        if done == len(rows):
            break
        best = done + int(rows[done:, column].abs().argmax())
        if rows[best, column].abs() <= _PIVOT:
            continue
        rows[[done, best]] = rows[[best, done]]
        rows[done] = rows[done] / rows[done, column]
        others = torch.arange(len(rows)) != done
        rows[others] = rows[others] - rows[others, column, None] * rows[done]
        done += 1
    return rows[:done]


def whole(vector: Tensor) -> Tensor | None:
    """Return the multiple of a vector that has small whole numbers as entries; None if there is none.

    >>> whole(torch.tensor([1.0, -1 / 3, 0.0]))
    tensor([ 3., -1.,  0.])
    """
    close = [Fraction(float(entry)).limit_denominator(_DENOMINATOR) for entry in vector]
    if any(
        abs(float(f) - float(v)) > _CLOSE * max(1, abs(float(v))) for f, v in zip(close, vector, strict=True)
    ):
        return None
    factor = math.lcm(*(f.denominator for f in close))
    entries = [int(f * factor) for f in close]
    divisor = math.gcd(*entries) or 1
    return torch.tensor([entry // divisor for entry in entries], dtype=vector.dtype)


def readable(basis: Tensor) -> Tensor:
    """Return rows that span the same space: in echelon form, of whole numbers where that is possible."""
    rows = echelon(basis)
    found = [whole(row) for row in rows]
    return (
        torch.stack([r if w is None else w for r, w in zip(rows, found, strict=True)]) if len(rows) else rows
    )


class Independent:
    """Picks vectors that add to the span of those picked before."""

    def __init__(self, size: int) -> None:
        self._basis = torch.zeros(0, size, dtype=torch.float64)

    @property
    def rank(self) -> int:
        """The number picked."""
        return len(self._basis)

    def adds(self, vector: Tensor) -> bool:
        """Whether a vector is new; if so, it is picked."""
        norm = vector.norm()
        if norm <= _PIVOT:
            return False
        new = vector / norm
        for _ in range(2):  # once more, for what rounding left of the first projection
            new = new - self._basis.T @ (self._basis @ new)
        if new.norm() <= _PIVOT:
            return False
        self._basis = torch.cat([self._basis, (new / new.norm())[None]])
        return True
