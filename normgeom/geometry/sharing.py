"""Shares of the data for processes started with torchrun, and sums over them.

Without `torch.distributed`, there is one process and everything is its share.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler


def place() -> tuple[int, int]:
    """Return (rank, number of processes)."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def total(value: torch.Tensor) -> torch.Tensor:
    """Sum a tensor over all processes, in place, and return it."""
    if place()[1] > 1:
        dist.all_reduce(value)
    return value


def refuse_unshareable(data: Any) -> None:
    """Raise an error for a loader whose batches would differ between processes."""
    if place()[1] == 1 or not isinstance(data, DataLoader):
        return
    if isinstance(data.sampler, RandomSampler | DistributedSampler):
        raise ValueError(
            "every process must see the same batches, of which it takes its share; got a loader with a "
            f"{type(data.sampler).__name__}. Use shuffle=False and no sampler."
        )
