"""Memory for large results."""

import numpy as np
import torch

LARGE = 2**22
"""Bytes from which the first touch of fresh memory costs more than the asking."""


def fresh(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Return an uninitialized tensor of this shape, in the type and on the device of `like`.

    On the CPU a large one is allocated by numpy, which asks the system for huge pages: filling it for the
    first time takes about half the time.
    """
    out = torch.empty(0, dtype=like.dtype, device=like.device)
    plain = like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64)
    if plain or int(np.prod(shape)) * like.dtype.itemsize < LARGE:
        return out.new_empty(shape)
    return torch.from_numpy(np.empty(shape, dtype=str(like.dtype).removeprefix("torch.")))


def reordered(matrix: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return `matrix[..., order, :][..., order]`: rows and columns in another order."""
    if matrix.requires_grad:
        return matrix.index_select(-2, order).index_select(-1, order)
    rows, out = fresh(matrix, *matrix.shape), fresh(matrix, *matrix.shape)
    torch.index_select(matrix, -2, order, out=rows)
    return torch.index_select(rows, -1, order, out=out)
