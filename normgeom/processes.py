"""Processes started with torchrun: which one this is, and sums over them.

Without `torch.distributed`, there is one process and everything is its share.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


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


def gathered(value: torch.Tensor, *, dim: int) -> torch.Tensor:
    """Return the shares of all processes, which have one shape, joined along an axis in order of rank."""
    if place()[1] == 1:
        return value
    shares = [torch.empty_like(value, memory_format=torch.contiguous_format) for _ in range(place()[1])]
    dist.all_gather(shares, value.contiguous())
    return torch.cat(shares, dim=dim)


def barrier() -> None:
    """Wait until every process is here."""
    if place()[1] > 1:
        dist.barrier()


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Join the processes that torchrun has started, if it has, and leave them at the end.

    Yields the device of this process: for `cuda`, the one with the number of this process on its machine.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or not dist.is_available():
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()
