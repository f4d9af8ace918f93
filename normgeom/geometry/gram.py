"""The running sum `F = sum_n K_n^T K_n` of rows held as factors."""

import torch

from normgeom.geometry.factors import Factor, Rows


class GramSum:
    """The running sum `F = sum_n K_n^T K_n`, by blocks between factors, symmetric ones stored packed.

    A block of two Kronecker factors is `sum_n (left^T left')_n (x) (right right'^T)_n`: one matrix product
    over cases, of a tenth the work of `K^T K` for ten outputs, and a quarter of that on the diagonal, where
    both sides are symmetric.
    """

    def __init__(self) -> None:
        self.blocks: dict[tuple[int, int], torch.Tensor] = {}
        self.rows: Rows = ()

    def add(self, rows: Rows) -> None:
        """Add the rows of some cases."""
        self.rows = rows
        for k, first in enumerate(rows):
            for m, second in enumerate(rows[k:], k):
                block = _packed_block(first) if k == m else _cross_block(first, second)
                if (k, m) in self.blocks:
                    self.blocks[k, m].add_(block)
                else:
                    self.blocks[k, m] = block

    def matrix(self, permutation: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Return the sum times `scale`, row and column k belonging to parameter `permutation[k]`."""
        own = torch.cat([factor.positions for factor in self.rows])
        out = self.rows[0].left.new_empty(len(own), len(own))
        starts = [0]
        for factor in self.rows:
            starts.append(starts[-1] + factor.size)
        for (k, m), block in self.blocks.items():
            rows, columns = (slice(starts[i], starts[i + 1]) for i in (k, m))
            first, second = self.rows[k], self.rows[m]
            target = out[rows, columns].unflatten(1, (second.units, second.inputs))
            target = target.unflatten(0, (first.units, first.inputs))
            whole = _unpacked_block(first, block) if k == m else block
            sizes = (first.units, second.units, first.inputs, second.inputs)
            torch.mul(whole.view(sizes).transpose(1, 2), scale, out=target)
            if k != m:
                out[columns, rows] = out[rows, columns].T
        order = torch.argsort(own)[permutation.to(own.device)]
        if torch.equal(order, torch.arange(len(order), device=order.device)):
            return out
        return out[order].index_select(1, order)


def _pairs(size: int, device: torch.device) -> torch.Tensor:
    return torch.triu_indices(size, size, device=device)


def _packed_block(factor: Factor) -> torch.Tensor:
    """The upper halves of `sum_n (left^T left)_n (x) (right right^T)_n`: (unit pairs, input pairs)."""
    if factor.right is None:
        rows = factor.left.flatten(0, 1)
        return symmetric_product(rows)[:, None]
    i, j = _pairs(factor.units, factor.left.device)
    d, e = _pairs(factor.inputs, factor.left.device)
    left = (factor.left.mT @ factor.left)[:, i, j]
    right = factor.right[:, d] * factor.right[:, e]
    return left.T @ right


def _unpacked_block(factor: Factor, block: torch.Tensor) -> torch.Tensor:
    if factor.right is None:
        return block
    return block.index_select(1, _unpacking(factor.inputs, block.device)).index_select(
        0, _unpacking(factor.units, block.device)
    )


def _unpacking(size: int, device: torch.device) -> torch.Tensor:
    """For each (row, column) of a symmetric matrix, its place in the packed upper half."""
    index = torch.empty(size, size, dtype=torch.long, device=device)
    i, j = _pairs(size, device)
    index[i, j] = index[j, i] = torch.arange(len(i), device=device)
    return index.flatten()


def _cross_block(first: Factor, second: Factor) -> torch.Tensor:
    """`sum_n (left^T left')_n (x) (right right'^T)_n`: (units * units', inputs * inputs')."""
    if first.right is None and second.right is None:
        return (first.left.flatten(0, 1).T @ second.left.flatten(0, 1)).reshape(-1, 1)
    left = (first.left.mT @ second.left).flatten(1)
    if first.right is None or second.right is None:
        right = second.right if first.right is None else first.right
        assert right is not None
        return left.T @ right
    return left.T @ (first.right[:, :, None] * second.right[:, None, :]).flatten(1)


def symmetric_product(rows: torch.Tensor, tile: int = 1024) -> torch.Tensor:
    """Return `rows.T @ rows`, the lower tiles copied from the upper: about half the work for wide rows."""
    size = rows.shape[1]
    if size <= 2 * tile:
        return rows.T @ rows
    out = rows.new_empty(size, size)
    for start in range(0, size, tile):
        stop = min(start + tile, size)
        torch.matmul(rows[:, start:stop].T, rows[:, start:], out=out[start:stop, start:])
        out[stop:, start:stop] = out[start:stop, stop:].T
    return out
