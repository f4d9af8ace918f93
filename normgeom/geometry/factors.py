"""Rows of a whitened Jacobian, kept as factors: `K_n = S_n^T J_n` with `F_n = K_n^T K_n`.

`S_n S_n^T` is the Fisher information of the outputs of case n. A parameter matrix that enters through one
linear map a case, `a_n = W x_n`, has rows `K_n[r, (i, d)] = left[n, r, i] right[n, d]`: what is summed over
the outputs r is `left`, before any product with the layer's input. A parameter that enters otherwise keeps
its rows whole in `left` (`right` is None).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Piece:
    """Where a tensor (rows, last - first) stands: columns first to last of the factor, from `start` on."""

    start: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Factor:
    """Jacobian rows of some parameters: left (cases, rows, units), right (cases, inputs) or None.

    The parameters form a table (height, width), one unit a row: units by inputs with a right factor, else the
    last axis of `left` cut into `height` rows. `pieces` says which columns belong to which tensor.
    """

    left: torch.Tensor
    right: torch.Tensor | None
    pieces: tuple[Piece, ...]
    height: int

    @property
    def units(self) -> int:
        """The number of units."""
        return self.left.shape[-1]

    @property
    def inputs(self) -> int:
        """The number of inputs, 1 without a right factor."""
        return 1 if self.right is None else self.right.shape[-1]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.units * self.inputs

    @property
    def positions(self) -> torch.Tensor:
        """Where each entry of the table stands among all parameters, tensor-major: (size,)."""
        parts = []
        for piece in self.pieces:
            count = self.height * (piece.last - piece.first)
            parts.append(torch.arange(piece.start, piece.start + count).view(self.height, -1))
        return torch.cat(parts, 1).flatten().to(self.left.device)

    def places(self, flat: torch.Tensor, piece: Piece) -> torch.Tensor:
        """Return the view of a piece, (..., height, width), of tensors over all parameters (..., size)."""
        width = piece.last - piece.first
        return flat[..., piece.start : piece.start + self.height * width].unflatten(-1, (self.height, width))

    def spread(self, table: torch.Tensor, flat: torch.Tensor) -> None:
        """Write a table (..., size) to its places among all parameters."""
        whole = table.unflatten(-1, (self.height, -1))
        for piece in self.pieces:
            self.places(flat, piece).copy_(whole[..., piece.first : piece.last])

    def dense(self) -> torch.Tensor:
        """Return the rows written out, of shape (cases, rows, size)."""
        if self.right is None:
            return self.left
        return (self.left[..., None] * self.right[:, None, None, :]).flatten(2)


Rows = Sequence[Factor]


def case_bytes(rows: Rows) -> int:
    """Return the bytes that one case needs while its rows are added to a `GramSum`."""
    lefts = sum(f.left[0].numel() for f in rows)
    kronecker = [f for f in rows if f.right is not None]
    pairs = max((a.units * b.units + a.inputs * b.inputs for a in rows for b in kronecker), default=0)
    return (lefts + pairs) * rows[0].left.dtype.itemsize


def dense_rows(rows: Rows, size: int) -> torch.Tensor:
    """Return the Jacobian rows of all parameters, tensor-major: (cases, rows, parameters)."""
    first = rows[0].left
    out = first.new_zeros(*first.shape[:2], size)
    for factor in rows:
        factor.spread(factor.dense(), out)
    return out


def squares(rows: Rows, size: int) -> torch.Tensor:
    """Return the diagonal of `sum_n K_n^T K_n`, tensor-major: (parameters,)."""
    first = rows[0].left
    out = first.new_zeros(size)
    for factor in rows:
        left = factor.left.square().sum(1)
        right = left.new_ones(len(left), 1) if factor.right is None else factor.right.square()
        factor.spread((left.T @ right).flatten(), out)
    return out


def case_traces(rows: Rows) -> torch.Tensor:
    """Return the trace of each `K_n^T K_n`: (cases,)."""
    parts = [f.left.square().sum((1, 2)) * (1 if f.right is None else f.right.square().sum(1)) for f in rows]
    return torch.stack(parts).sum(0)


def dual(rows: Rows, tile: int = 256) -> torch.Tensor:
    """Return the Gram matrix of the rows, `K K^T`: (cases * rows, cases * rows).

    Its nonzero eigenvalues are those of `sum_n K_n^T K_n`. A Kronecker factor adds
    `left left^T * right right^T`; tiles below the diagonal are copied from above.
    """
    cases, count, _ = rows[0].left.shape
    out = rows[0].left.new_zeros(cases * count, cases * count)
    for factor in rows:
        left = factor.left.flatten(0, 1)
        inputs = None
        if factor.right is not None:
            inputs = (factor.right @ factor.right.T).repeat_interleave(count, 0).repeat_interleave(count, 1)
        for start in range(0, len(left), tile):
            stop = min(start + tile, len(left))
            block, target = left[start:stop] @ left[start:].T, out[start:stop, start:]
            target.add_(block) if inputs is None else target.addcmul_(block, inputs[start:stop, start:])
    for start in range(0, len(out), tile):
        stop = min(start + tile, len(out))
        out[stop:, start:stop] = out[start:stop, stop:].T
    return out


def apply(rows: Rows, vector: torch.Tensor) -> torch.Tensor:
    """Return `K v` for a vector (parameters,), tensor-major: (cases, rows)."""
    return torch.stack([_applied(factor, vector) for factor in rows]).sum(0)


def _applied(factor: Factor, vector: torch.Tensor) -> torch.Tensor:
    parts = [factor.places(vector, piece) for piece in factor.pieces]
    if factor.right is None:
        return factor.left @ torch.cat(parts, 1).flatten()
    pairs = zip(factor.pieces, parts, strict=True)
    summed = [factor.right[:, p.first : p.last] @ part.T for p, part in pairs]
    total = summed[0] if len(summed) == 1 else summed[0].add_(summed[1])
    return (factor.left @ total[:, :, None])[:, :, 0]


def apply_transpose(rows: Rows, weights: torch.Tensor, size: int) -> torch.Tensor:
    """Return `K^T u` for u (cases, rows): (parameters,), tensor-major."""
    out = weights.new_empty(size)
    for factor in rows:
        if factor.right is None:
            factor.spread(factor.left.flatten(0, 1).T @ weights.flatten(), out)
            continue
        left = (weights[:, None] @ factor.left)[:, 0]
        for piece in factor.pieces:
            torch.mm(left.T, factor.right[:, piece.first : piece.last], out=factor.places(out, piece))
    return out


def case_matrices(rows: Rows, permutation: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write `K_n^T K_n` of each case into `out` (cases, parameters, parameters) and return it."""
    own = torch.cat([factor.positions for factor in rows])
    order = torch.argsort(own)[permutation.to(own.device)]
    if torch.equal(order, torch.arange(len(order), device=order.device)) and rows[0].left.shape[1] > 2:
        return _case_blocks(rows, out)
    dense = dense_rows(rows, len(own))[..., permutation.to(own.device)]
    return torch.matmul(dense.mT, dense, out=out)


def _case_blocks(rows: Rows, out: torch.Tensor) -> torch.Tensor:
    start = 0
    for k, first in enumerate(rows):
        stop, begin = start + first.size, start
        for second in rows[k:]:
            end = begin + second.size
            target = out[:, start:stop, begin:end].unflatten(2, (second.units, second.inputs))
            target = target.unflatten(1, (first.units, first.inputs))
            left = (first.left.mT @ second.left)[:, :, None, :, None]
            ones = left.new_ones(len(left), 1)
            one, two = (ones if f.right is None else f.right for f in (first, second))
            torch.mul(left, (one[:, :, None] * two[:, None, :])[:, None, :, None, :], out=target)
            if first is not second:
                out[:, begin:end, start:stop] = out[:, start:stop, begin:end].mT
            begin = end
        start = stop
    return out


def concatenate(chunks: Iterable[Rows], *, along_rows: bool = False) -> Rows:
    """Join the rows of several chunks along cases, or the rows of the same cases along rows."""
    chunks = list(chunks)
    if len(chunks) == 1:
        return chunks[0]
    joined = []
    for parts in zip(*chunks, strict=True):
        left = torch.cat([f.left for f in parts], 1 if along_rows else 0)
        rights = [f.right for f in parts if f.right is not None]
        right = (rights[0] if along_rows else torch.cat(rights)) if rights else None
        joined.append(Factor(left, right, parts[0].pieces, parts[0].height))
    return joined
