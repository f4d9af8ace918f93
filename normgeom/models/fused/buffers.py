"""Memory that one training step leaves to the next: fresh pages cost more than what is written on them."""

import math

import torch

_KEPT = 32


class Buffers:
    """Scratch tensors of one pass, given back to the pool when the pass is forgotten."""

    def __init__(self, pool: "Pool", dtype: torch.dtype) -> None:
        self._pool, self._dtype = pool, dtype
        self._taken: list[torch.Tensor] = []

    def take(self, *shape: int) -> torch.Tensor:
        """Return a tensor with anything in it."""
        size = math.prod(shape)
        flat = self._pool.take(size, self._dtype)
        self._taken.append(flat)
        return flat[:size].view(shape)

    def __del__(self) -> None:
        """Give everything back."""
        for flat in self._taken:
            self._pool.give(flat)


class Pool:
    """Flat tensors that nobody uses now, by size and type; the longest unused are forgotten first."""

    def __init__(self) -> None:
        self._free: list[torch.Tensor] = []

    def take(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of at least this size: sizes are rounded up by at most an eighth."""
        step = max(1, 2 ** (size.bit_length() - 4))
        rounded = -(-size // step) * step
        for index in range(len(self._free) - 1, -1, -1):
            found = self._free[index]
            if found.numel() == rounded and found.dtype == dtype:
                return self._free.pop(index)
        return torch.empty(rounded, dtype=dtype)

    def give(self, flat: torch.Tensor) -> None:
        """Keep a tensor for the next to come."""
        self._free.append(flat)
        del self._free[:-_KEPT]


POOL = Pool()
