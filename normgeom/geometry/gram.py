"""The running sum `F = sum_n K_n^T K_n` of rows held as factors."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from normgeom.geometry.factors import Factor, Piece, Rows
from normgeom.geometry.memory import fresh, reordered

_FEATURE_ROWS = 16
_FEATURE_COLUMNS = 64
_PRODUCTS_AT_ONCE = 2**18


class GramSum:
    """The running sum `F = sum_n K_n^T K_n`, by blocks between factors.

    A block of two Kronecker factors is `sum_n (left^T left')_n (x) (right right'^T)_n`: one matrix product
    over cases, of a tenth the work of `K^T K` for ten outputs, and about a quarter of that on the diagonal,
    where both sides are symmetric.
    """

    def __init__(self) -> None:
        self.blocks: dict[tuple[int, int], torch.Tensor] = {}
        self.rows: Rows = ()

    def add(self, rows: Rows) -> None:
        """Add the rows of some cases."""
        self.rows = rows
        for k, first in enumerate(rows):
            for m, second in enumerate(rows[k:], k):
                block = _own_block(first) if k == m else _cross_block(first, second)
                if (k, m) in self.blocks:
                    self.blocks[k, m].add_(block)
                else:
                    self.blocks[k, m] = block

    def matrix(self, permutation: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Return the sum times `scale`, row and column k belonging to parameter `permutation[k]`.

        Tensor-major and the factors' own order are written straight to their places.
        """
        own = torch.cat([factor.positions for factor in self.rows])
        wanted, ranks = permutation.to(own.device), torch.arange(len(own), device=own.device)
        tensor_major = torch.equal(wanted, ranks)
        spots = [f.pieces for f in self.rows] if tensor_major else _own_spots(self.rows)
        out = fresh(self.rows[0].left, len(own), len(own))
        for (k, m), block in self.blocks.items():
            for one in spots[k]:
                for other in spots[m]:
                    _place((self.rows[k], self.rows[m]), (one, other), block, out, scale)
        order = ranks if tensor_major else torch.argsort(own)[wanted]
        return out if torch.equal(order, ranks) else reordered(out, order)


def _own_spots(rows: Rows) -> list[tuple[Piece, ...]]:
    """The table of each factor as one piece, one factor after another."""
    starts = itertools.accumulate((f.size for f in rows), initial=0)
    return [(Piece(start, 0, f.size // f.height),) for start, f in zip(starts, rows, strict=False)]


def _own_block(factor: Factor) -> torch.Tensor:
    """`sum_n (left^T left)_n (x) (right right^T)_n` of a factor, for a Kronecker one by pairs of units."""
    if factor.right is None:
        return symmetric_product(factor.left.flatten(0, 1))
    return _pair_grams(factor.left.mT @ factor.left, factor.right, factor.inputs)


def _place(
    factors: tuple[Factor, Factor], pieces: tuple[Piece, Piece], block: Tensor, out: Tensor, scale: float
) -> None:
    """Write the part of a block between two pieces, times `scale`, to its places in the matrix."""
    first, second = factors
    (rows, width), (columns, length) = (_extent(f, p) for f, p in zip(factors, pieces, strict=True))
    target = out[rows, columns].unflatten(1, (second.height, length)).unflatten(0, (first.height, width))
    of_rows, of_columns = (slice(p.first, p.last) for p in pieces)
    if first is second and first.right is not None:
        buffer = block.new_empty(first.units, width, length)
        for places, pair in zip(target, _pair_index(first.units, block.device), strict=True):
            torch.index_select(block[:, of_rows, of_columns], 0, pair, out=buffer)
            torch.mul(buffer.transpose(0, 1), scale, out=places)
        return
    table = block.unflatten(1, (second.height, -1)).unflatten(0, (first.height, -1))
    torch.mul(table[:, of_rows, :, of_columns], scale, out=target)
    if first is not second:
        out[columns, rows] = out[rows, columns].T


def _extent(factor: Factor, piece: Piece) -> tuple[slice, int]:
    """Where a piece lies along one axis of the matrix, and its width."""
    width = piece.last - piece.first
    return slice(piece.start, piece.start + factor.height * width), width


def _cross_block(first: Factor, second: Factor) -> torch.Tensor:
    """`sum_n (left^T left')_n (x) (right right'^T)_n` of two factors: (size, size')."""
    if first.right is None and second.right is None:
        return first.left.flatten(0, 1).T @ second.left.flatten(0, 1)
    ones = first.left.new_ones(len(first.left), 1)
    right, other = (ones if f.right is None else f.right for f in (first, second))
    left = (first.left.mT @ second.left).flatten(1)
    pairs = (right[:, :, None] * other[:, None, :]).flatten(1)
    products = torch.matmul(left.T, pairs, out=fresh(left, left.shape[1], pairs.shape[1]))
    sizes = (first.units, second.units, first.inputs, second.inputs)
    return products.view(sizes).transpose(1, 2).reshape(first.size, second.size)


def symmetric_product(rows: torch.Tensor, tile: int = 1024) -> torch.Tensor:
    """Return `rows.T @ rows`, the lower tiles copied from the upper: about half the work for wide rows."""
    size = rows.shape[1]
    if size <= 2 * tile:
        return rows.T @ rows
    out = fresh(rows, size, size)
    for start in range(0, size, tile):
        stop = min(start + tile, size)
        torch.matmul(rows[:, start:stop].T, rows[:, start:], out=out[start:stop, start:])
        out[stop:, start:stop] = out[start:stop, stop:].T
    return out


def weighted_grams(weights: Tensor, features: Tensor, size: int) -> Tensor:
    """Return `sum_n A_n,jk phi_n phi_n^T` at [j, :inputs, k, :inputs] of (units, size, units, size).

    Both symmetries are used: pairs j <= k of units, and blocks of features on or right of the diagonal.
    One matrix product a block, (pairs, cases) by (cases, products of features). Places beyond the inputs
    are left for others to fill.
    """
    units = weights.shape[1]
    grams, pair = _pair_grams(weights, features, size), _pair_index(units, weights.device)
    # Whole rows are gathered, borders included: one pass over the result.
    rows = pair[:, None, :] * size + torch.arange(size, device=grams.device)[:, None]
    out = fresh(grams, units * size * units, size)
    torch.index_select(grams.reshape(-1, size), 0, rows.flatten(), out=out)
    return out.view(units, size, units, size)


def _pair_grams(weights: Tensor, features: Tensor, size: int) -> Tensor:
    """Return `sum_n A_n,jk phi_n phi_n^T` for j <= k: (pairs, size, size), filled up to the inputs."""
    units, inputs = weights.shape[1], features.shape[1]
    first, second = torch.triu_indices(units, units, device=weights.device)
    pairs = weights.flatten(1).index_select(1, first * units + second).T
    grams = fresh(features, len(pairs), size, size)
    # One small buffer for all products: they stay in the cache, and no fresh memory is touched.
    buffer = features.new_empty(_PRODUCTS_AT_ONCE)
    for start, stop in _cuts(0, inputs, _FEATURE_ROWS):
        for left, right in _cuts(start, inputs, _FEATURE_COLUMNS):
            tile = _products_summed(pairs, features[:, start:stop], features[:, left:right], buffer)
            grams[:, start:stop, left:right] = tile
        grams[:, stop:inputs, start:stop] = grams[:, start:stop, stop:inputs].mT
    return grams


def _cuts(start: int, stop: int, width: int) -> Iterator[tuple[int, int]]:
    """Cut a range into about equal parts of about this width."""
    count = max(1, round((stop - start) / width))
    edges = [start + (stop - start) * k // count for k in range(count + 1)]
    return itertools.pairwise(edges)


def _pair_index(units: int, device: torch.device) -> Tensor:
    """For units j and k, the number of their pair among those with j <= k: (units, units)."""
    first, second = torch.triu_indices(units, units, device=device)
    pair = torch.empty(units, units, dtype=torch.long, device=device)
    pair[first, second] = pair[second, first] = torch.arange(len(first), device=device)
    return pair


def _products_summed(pairs: Tensor, rows: Tensor, others: Tensor, buffer: Tensor) -> Tensor:
    """Return `sum_n pairs_pn rows_nd others_ne`, of shape (pairs, rows, others)."""
    width, length = rows.shape[1], others.shape[1]
    chunk = max(1, len(buffer) // (width * length))
    total = rows.new_empty(len(pairs), width * length)
    for some in range(0, len(rows), chunk):
        here, there = rows[some : some + chunk], others[some : some + chunk]
        products = buffer[: len(here) * width * length].view(len(here), width, length)
        torch.mul(here[:, :, None], there[:, None, :], out=products)
        weights = pairs[:, some : some + chunk]
        torch.addmm(total, weights, products.flatten(1), beta=float(some > 0), out=total)
    return total.reshape(-1, width, length)


def columns(weights: Tensor) -> Tensor:
    """(cases, units, units) as (units * units, cases)."""
    return weights.permute(1, 2, 0).reshape(-1, len(weights))
