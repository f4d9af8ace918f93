"""Memory that one training step leaves to the next: fresh pages cost more than what is written on them."""

import math
import threading
from collections import deque
from collections.abc import Callable

import torch

from normgeom.models.watchers import saved_through_hooks

_MOST_BYTES = 2**30


class Pool:
    """Flat tensors that nobody uses now, by size; beyond a number of bytes the longest unused size goes.

    >>> pool = Pool(most_bytes=100)
    >>> first = pool.take(10, torch.float32)
    >>> pool.give(first)
    >>> pool.take(10, torch.float32) is first
    True

    Safe in many threads, and in a collection of garbage at any line of its own: nobody waits for the lock.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes, self.bytes = most_bytes, 0
        self._free: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}
        self._given, self._lock = deque[torch.Tensor](), threading.Lock()

    def take(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of at least this size: sizes are rounded up by at most an eighth."""
        step = max(1, 2 ** (size.bit_length() - 4))
        rounded = -(-size // step) * step
        if self._lock.acquire(blocking=False):
            try:
                self._sort()
                free = self._free.get((rounded, dtype))
                if free:
                    self.bytes -= free[-1].nbytes
                    return free.pop()
            finally:
                self._lock.release()
        # whatever the default device, and in inference too: it will serve others
        with torch.inference_mode(False):
            return torch.empty(rounded, dtype=dtype, device="cpu")

    def give(self, flat: torch.Tensor) -> None:
        """Keep a tensor for the next to come."""
        self._given.append(flat)
        if self._lock.acquire(blocking=False):  # else the next to hold the lock sorts it in
            try:
                self._sort()
            finally:
                self._lock.release()

    def _sort(self) -> None:
        """Sort in what was given, under the lock."""
        while self._given:
            flat = self._given.popleft()
            key = (flat.numel(), flat.dtype)
            self._free[key] = [*self._free.pop(key, []), flat]
            self.bytes += flat.nbytes
        while self.bytes > self.most_bytes and self._free:
            self.bytes -= sum(old.nbytes for old in self._free.pop(next(iter(self._free)), []))


POOL = Pool()


class Buffers:
    """Scratch tensors like a given one, of one pool; given back to it when the buffers are forgotten.

    On other devices than the CPU torch keeps memory itself, and they are new ones.
    """

    def __init__(self, like: torch.Tensor, pool: Pool | None = None) -> None:
        self._like, self._pool = like, POOL if pool is None else pool
        self._taken: list[torch.Tensor] = []

    @classmethod
    def for_gradient(cls, like: torch.Tensor) -> "Buffers":
        """Return buffers for what a pass saves: a hook may take it away, and keep it for longer."""
        return cls(like, Pool(most_bytes=0) if saved_through_hooks() else None)

    def last_as_long_as(self, tensor: torch.Tensor) -> None:
        """Let a tensor that autograd saves refer to the buffers, so that they go back when it is freed."""
        tensor.buffers = self  # type: ignore[attr-defined]

    def take(self, *shape: int) -> torch.Tensor:
        """Return a tensor with anything in it."""
        if self._like.device.type != "cpu":
            return self._like.new_empty(shape)
        size = math.prod(shape)
        flat = self._pool.take(size, self._like.dtype)
        self._taken.append(flat)
        return flat[:size].view(shape)

    def take_all(self, **shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
        """Return a tensor of each shape, all of one piece of memory."""
        return in_pieces(self.take, shapes)

    def __del__(self) -> None:
        """Give everything back."""
        for flat in self._taken:
            self._pool.give(flat)


def in_pieces(
    make: Callable[[int], torch.Tensor], shapes: dict[str, tuple[int, ...]]
) -> dict[str, torch.Tensor]:
    """Return a tensor of each shape, all of one flat tensor that is made of the size asked for.

    >>> {name: piece.shape for name, piece in in_pieces(torch.zeros, {"a": (2, 3), "b": (5,)}).items()}
    {'a': torch.Size([2, 3]), 'b': torch.Size([5])}
    """
    starts = [0]
    for shape in shapes.values():  # each at a multiple of 64 bytes
        starts.append(starts[-1] + -(-math.prod(shape) // 16) * 16)
    flat, places = make(starts[-1]), zip(shapes.items(), starts, strict=False)
    return {name: flat[at : at + math.prod(shape)].view(shape) for (name, shape), at in places}
