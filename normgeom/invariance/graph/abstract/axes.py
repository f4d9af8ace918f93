"""Which entry of an action's parameter meets which entry of a tensor, through views and permutations.

An index map is a tuple of pieces (axis, repeat, size, stride): the parameter's index is the sum over pieces
of `stride * ((i_axis // repeat) % size)`. No pieces: one number for the whole tensor.
"""

import math
from collections.abc import Iterable

Piece = tuple[int, int, int, int]
Along = tuple[Piece, ...]
Shape = tuple[int, ...]


def fresh(shape: Shape, axes: Iterable[int]) -> Along:
    """Return the map of a parameter with one number for each index along these axes.

    >>> fresh((5, 4), [0])
    ((0, 1, 5, 1),)
    """
    pieces, stride = [], 1
    for axis in sorted(set(axes), reverse=True):
        pieces.append((axis, 1, shape[axis], stride))
        stride *= shape[axis]
    return canonical(pieces)


def varies(along: Along) -> set[int]:
    """Return the axes along which the parameter varies."""
    return {axis for axis, *_ in along}


def canonical(pieces: Iterable[Piece]) -> Along:
    """Return pieces in one order, adjoining ones joined, those of size 1 left out."""
    out: list[Piece] = []
    for axis, repeat, size, stride in sorted(p for p in pieces if p[2] > 1):
        if (
            out
            and out[-1][0] == axis
            and repeat == out[-1][1] * out[-1][2]
            and stride == out[-1][3] * out[-1][2]
        ):
            _, first, inner, small = out.pop()
            out.append((axis, first, inner * size, small))
        else:
            out.append((axis, repeat, size, stride))
    return tuple(out)


def moved(along: Along, axes: dict[int, int]) -> Along:
    """Return the map when every axis gets another number."""
    return canonical((axes[axis], *rest) for axis, *rest in along)  # type: ignore[misc]


def reshaped(along: Along, old: Shape, new: Shape) -> Along | None:
    """Return the map after a view, or None where an axis is cut across.

    Each piece is an interval of strides of the flat index; a view cuts the flat index anew.

    >>> reshaped(fresh((2, 6, 3), [1]), (2, 6, 3), (2, 9, 2))
    >>> reshaped(fresh((2, 6, 3), [1]), (2, 6, 3), (2, 2, 3, 3))
    ((1, 1, 2, 3), (2, 1, 3, 1))
    """
    out: list[Piece] = []
    for axis, repeat, size, stride in along:
        low = math.prod(old[axis + 1 :]) * repeat
        high = low * size
        if old[axis] % (size * repeat):
            return None
        covered = 1
        for place in range(len(new)):
            start = math.prod(new[place + 1 :])
            begin, end = max(low, start), min(high, start * new[place])
            if begin >= end:
                continue
            if end % begin or begin % low or begin % start or (start * new[place]) % end:
                return None
            covered *= end // begin
            out.append((place, begin // start, end // begin, stride * (begin // low)))
        if covered != size:
            return None
    return canonical(out)
