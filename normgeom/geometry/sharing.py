"""Data that processes started with torchrun can share."""

from typing import Any

from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

from normgeom.processes import place


def refuse_unshareable(data: Any) -> None:
    """Raise an error for a loader whose batches would differ between processes."""
    if place()[1] == 1 or not isinstance(data, DataLoader):
        return
    if isinstance(data.sampler, RandomSampler | DistributedSampler):
        raise ValueError(
            "every process must see the same batches, of which it takes its share; got a loader with a "
            f"{type(data.sampler).__name__}. Use shuffle=False and no sampler."
        )
