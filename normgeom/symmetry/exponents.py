"""The vectors of exponents that annihilate slopes: a null space, read as a sparse basis of whole numbers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import optimize

_DENOMINATOR = 12
_GAP = 10.0
_SEVERAL, _PAIR = 3, 2


@dataclass(frozen=True)
class Exponents:
    """A basis of the exponents, and how sure its dimension is.

    Attributes:
        vectors: whole numbers, one for every column, sparse vectors of ±1 first.
        smallest_kept: the smallest singular value that counts as not zero, relative to the largest.
        largest_null: the largest that counts as zero.
        unread: null directions that no confirmed vector of small whole numbers accounts for.
    """

    vectors: tuple[tuple[int, ...], ...]
    smallest_kept: float
    largest_null: float
    unread: int


def _unknown(vector: tuple[int, ...]) -> float:
    return 1.0


def null_exponents(
    slopes: np.ndarray,
    confirm: Callable[[tuple[int, ...]], bool],
    *,
    widths: Sequence[tuple[int, int]] | None = None,
    misfit: Callable[[tuple[int, ...]], float] = _unknown,
    rounding: float = 1e-5,
    prepare: Callable[[Sequence[tuple[int, ...]]], None] | None = None,
) -> Exponents:
    """Return a confirmed basis of the k with `slopes @ k = 0`.

    The dimension is read off a gap of the singular values. A gap whose vectors are not all confirmed gives
    way to the next lower one: a slope of 1e-9 is small, and not zero.

    Args:
        slopes: (functionals, blocks), no column zero.
        confirm: whether a finite transform with these exponents leaves the function unchanged.
        widths: (units, inputs) of each block, inputs 0 for gains and biases. Of vectors of one size those are
            preferred that have fewer gains and biases, and whose units fit the inputs of what reads them.
        misfit: how far a vector is from one that holds unit by unit, 0 if it does; of vectors of one size
            those that do are preferred.
        rounding: a singular value that may count as zero, and how far exponents may be from fractions.
        prepare: called with the vectors that `confirm` is asked about next, to try them at once.

    >>> slopes = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 1.0], [1.0, 1.0, 3.0]])  # of f(a b, c)
    >>> null_exponents(slopes, lambda k: True).vectors
    ((1, -1, 0),)
    """
    size = slopes.shape[1]
    if not size:
        return Exponents((), 1.0, 0.0, 0)
    lengths = np.linalg.norm(slopes, axis=0)
    # A tall matrix has all right directions without its square of the left ones.
    _, values, directions = np.linalg.svd(slopes / lengths, full_matrices=len(slopes) < size)
    values = np.concatenate([values, np.zeros(size - len(values))]) / values[0]
    best = Exponents((), float(values[-1]), 0.0, 0)
    taste = Taste(tuple(widths or [(1, 1)] * size), misfit, rounding)
    for nullity in _nullities(values, rounding):
        basis = _by_units(integer_basis(directions[size - nullity :].T / lengths[:, None], taste), taste)
        oriented = sorted(map(taste.oriented, basis), key=lambda vector: np.flatnonzero(vector).tolist())
        if prepare is not None:
            prepare(oriented)
        good = tuple(filter(confirm, oriented))
        kept = float(values[size - nullity - 1]) if nullity < size else 1.0
        found = Exponents(good, kept, float(values[size - nullity]), nullity - len(good))
        if not found.unread:
            return found
        if len(good) >= len(best.vectors):
            best = found
    return best


def _nullities(values: np.ndarray, rounding: float) -> list[int]:
    """The dimensions that a gap of the singular values allows, largest first."""
    small = [k for k in range(len(values)) if values[k] < rounding]
    return [len(values) - k for k in small if k == 0 or values[k - 1] > _GAP * max(values[k], 1e-300)]


@dataclass(frozen=True)
class Taste:
    """Which of two vectors is easier to read: ±1 only, few blocks, by unit, few gains, sizes that fit."""

    widths: tuple[tuple[int, int], ...]
    misfit: Callable[[tuple[int, ...]], float] = _unknown
    rounding: float = 1e-5

    def cost(self, vector: tuple[int, ...]) -> tuple[int, ...]:
        """Return what is compared, the more important first."""
        used = [k for k, x in enumerate(vector) if x]
        large, total = sum(abs(x) > 1 for x in vector), sum(map(abs, vector))
        gains = sum(self.widths[k][1] == 0 for k in used)
        size = large, len(used), total, int(self.misfit(vector) > 0), gains
        if self._is_stream(vector):
            return *size, 0, 0, -sum(used), *vector
        return *size, self._sizes_beyond_one(vector), used[-1] - used[0], sum(used), *vector

    def _is_stream(self, vector: tuple[int, ...]) -> bool:
        """Whether all goes one way, up to the gain and bias of the norm that reads it last."""
        sides = [[self.widths[k][1] > 0 for k, x in enumerate(vector) if x * sign > 0] for sign in (1, -1)]
        few, many = sorted(sides, key=len)
        return not any(few) and (not few or sum(many) > _SEVERAL)

    def oriented(self, vector: tuple[int, ...]) -> tuple[int, ...]:
        """Return the vector or its negative, so that gains and biases have positive exponents."""
        balance = sum(
            (x > 0) - (x < 0) for x, (_, inputs) in zip(vector, self.widths, strict=True) if not inputs
        )
        return tuple(-x for x in vector) if balance < 0 else vector

    def _sizes_beyond_one(self, vector: tuple[int, ...]) -> int:
        """How many sizes there are beyond one: units of the writing side, inputs of the reading side."""
        up, down = ([k for k, x in enumerate(vector) if x * sign > 0] for sign in (1, -1))
        return min(self._sizes(up, down), self._sizes(down, up)) - 1

    def _sizes(self, writers: list[int], readers: list[int]) -> int:
        inputs = {self.widths[k][1] for k in readers if self.widths[k][1]}
        # A gain that multiplies what a layer puts out reads it too; what reads a gain is more common.
        return len({self.widths[k][0] for k in writers} | inputs) + (not inputs)

    @property
    def weights(self) -> np.ndarray:
        """The same for a linear program: near 1, so that they decide between equal sums only."""
        gains = np.array([inputs == 0 for _, inputs in self.widths])
        return 1 + 0.01 * gains - 0.001 * np.arange(len(gains)) / len(gains)


def integer_basis(null: np.ndarray, taste: Taste) -> list[tuple[int, ...]]:
    """Return sparse integer vectors that span the columns of `null`; fewer if some are not rational."""
    reduced, pivots = _reduced_echelon(null.T.copy())
    rows = [row for row in (_whole(row, taste.rounding) for row in reduced) if row is not None]
    if len(rows) < len(reduced):
        return _sparsest([_signed(row) for row in rows], len(rows), taste)
    pool = {_signed(row) for row in rows}
    for column in sorted({int(k) for row in rows for k in np.flatnonzero(row)}):
        shortest = _shortest(reduced, column, taste)
        if shortest is not None and _is_member(shortest, reduced, pivots, taste.rounding):
            pool.add(_signed(shortest))
    for _ in range(3):
        pool |= _sums(_sparsest(list(pool), len(rows), taste))
    return _sparsest(list(pool), len(rows), taste)


def _by_units(basis: Sequence[tuple[int, ...]], taste: Taste) -> list[tuple[int, ...]]:
    """The basis with vectors brought to hold unit by unit, by adding pairs of it that keep their size."""
    pairs = [np.asarray(vector) for vector in basis if sum(map(bool, vector)) == 2]
    return [_nearer(vector, pairs, taste) for vector in basis]


def _nearer(vector: tuple[int, ...], pairs: Sequence[np.ndarray], taste: Taste) -> tuple[int, ...]:
    """A vector after steps that each bring it nearer, or itself if they do not lead to the end."""
    start, size = vector, sum(map(bool, vector))
    left = taste.misfit(vector)
    while left and size > _PAIR:
        sums = [np.asarray(vector) + sign * pair for pair in pairs for sign in (1, -1)]
        near = [
            tuple(map(int, one)) for one in sums if np.count_nonzero(one) == size and np.abs(one).max() == 1
        ]
        best = min(near, key=taste.misfit, default=vector)
        if taste.misfit(best) >= left:
            break
        vector, left = best, taste.misfit(best)
    return start if left else vector


def _reduced_echelon(rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Gauss and Jordan with complete pivoting: the identity at the pivots."""
    pivots: list[int] = []
    for k in range(len(rows)):
        rest = np.abs(rows[k:])
        rest[:, pivots] = 0.0
        i, j = map(int, np.unravel_index(int(rest.argmax()), rest.shape))
        rows[np.array([k, k + i])] = rows[np.array([k + i, k])]
        rows[k] /= rows[k, j]
        others = np.arange(len(rows)) != k
        rows[others] -= np.outer(rows[others, j], rows[k])
        pivots.append(j)
    return rows, pivots


def _whole(row: np.ndarray, rounding: float) -> tuple[int, ...] | None:
    """The smallest multiple of whole numbers, or None if the row is not one of small fractions."""
    parts = [Fraction(float(x)).limit_denominator(_DENOMINATOR) for x in row]
    if max(abs(float(part) - x) for part, x in zip(parts, row, strict=True)) > rounding:
        return None
    factor = math.lcm(*(part.denominator for part in parts))
    return _coprime([int(part * factor) for part in parts])


def _coprime(whole: Sequence[int]) -> tuple[int, ...] | None:
    divisor = math.gcd(*whole)
    return tuple(x // divisor for x in whole) if divisor else None


def _shortest(rows: np.ndarray, column: int, taste: Taste) -> tuple[int, ...] | None:
    """The vector of least weighted sum of magnitudes in the span with 1 at a column: a linear program."""
    used = np.flatnonzero(np.abs(rows).max(0) > taste.rounding)
    count, size = len(rows), len(used)
    span, identity = np.round(rows[:, used].T, 9), np.eye(size)
    found = optimize.linprog(
        np.concatenate([np.zeros(count), taste.weights[used]]),
        A_ub=np.block([[span, -identity], [-span, -identity]]),
        b_ub=np.zeros(2 * size),
        A_eq=np.concatenate([rows[:, column], np.zeros(size)])[None],
        b_eq=[1.0],
        bounds=[(None, None)] * count + [(0, None)] * size,
    )
    return _whole(np.asarray(found.x)[:count] @ rows, taste.rounding) if found.success else None


def _is_member(vector: Sequence[int], rows: np.ndarray, pivots: list[int], rounding: float) -> bool:
    whole = np.asarray(vector, dtype=float)
    return bool(np.abs(whole[pivots] @ rows - whole).max() < 100 * rounding)


def _sums(vectors: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Sums and differences of vectors that share a column."""
    found = set()
    table = np.asarray(vectors)
    for i, one in enumerate(table):
        for other in table[:i]:
            if (one * other).any():
                both = [_coprime([int(x) for x in v]) for v in (one + other, one - other)]
                found |= {_signed(v) for v in both if v is not None}
    return found


def _signed(vector: tuple[int, ...]) -> tuple[int, ...]:
    """The vector or its negative: more positive entries, else the first one positive."""
    balance = sum((x > 0) - (x < 0) for x in vector)
    first = next(x for x in vector if x)
    return tuple(-x for x in vector) if balance < 0 or (balance == 0 and first < 0) else vector


def _sparsest(vectors: Sequence[tuple[int, ...]], count: int, taste: Taste) -> list[tuple[int, ...]]:
    """The cheapest independent vectors; taking the cheapest first is best for a basis from a given pool."""
    chosen: list[tuple[int, ...]] = []
    orthogonal: list[np.ndarray] = []
    for vector in sorted(vectors, key=taste.cost):
        rest = np.asarray(vector, dtype=float)
        for _ in range(2):
            for one in orthogonal:
                rest = rest - (rest @ one) * one
        if np.linalg.norm(rest) > 1e-6 * np.linalg.norm(vector):
            orthogonal.append(rest / np.linalg.norm(rest))
            chosen.append(vector)
        if len(chosen) == count:
            break
    return chosen
