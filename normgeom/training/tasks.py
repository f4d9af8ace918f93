"""What a model learns: batches by number, the loss, and the held-out part.

A batch is a function of its number alone, so that a run which goes on from step k sees what it would have
seen without a break.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

IGNORED = -100
"""The target of a place that only fills a batch."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and targets on one device; `fresh` if no recurrent state comes over from the batch before."""

    inputs: Tensor
    targets: Tensor
    fresh: bool


@runtime_checkable
class Task(Protocol):
    """What the loop asks of a task."""

    @property
    def classes(self) -> int:
        """The number of classes that are told apart."""

    def batch(self, number: int, /) -> Batch:
        """Return the batch with this number, from 0."""

    def held_out(self) -> Iterator[Batch]:
        """Return the held-out part, batch by batch."""

    def predict(self, model: Any, batch: Batch, state: Any, /) -> tuple[Tensor, Any]:
        """Return logits, classes along the last axis, and the recurrent state after the batch."""

    def share(self, rank: int, processes: int, /) -> "Task":
        """Return the task of one process of several: its part of every batch and of the held-out part."""

    def to(self, device: torch.device, /) -> "Task":
        """Return the task on another device."""

    def identity(self) -> dict[str, str | int]:
        """Return what tells this task from others; the same for all shares."""


def own(size: int, rank: int, processes: int) -> slice:
    """Return the part of a batch that a process takes."""
    part = size // processes
    return slice(rank * part, (rank + 1) * part)


def check_at_least_1(**numbers: int) -> None:
    """Raise an error for what is no whole number from 1."""
    for name, value in numbers.items():
        check_whole(**{name: value})
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}.")


def check_batch_number(number: int) -> None:
    """Raise an error for what is no number of a batch."""
    check_whole(number=number)
    if number < 0:
        raise ValueError(f"batches are numbered from 0; got {number}.")


def check_whole(**numbers: Any) -> None:
    """Raise an error for what is no integer of Python's or numpy's, or a bool."""
    for name, value in numbers.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise ValueError(f"{name} must be a whole number; got {value!r}.")


def check_model_and_task(model: Any, task: Any) -> None:
    """Raise an error for what is no module, or no task."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model must be an nn.Module; got {type(model).__name__}.")
    if not isinstance(task, Task):
        raise TypeError(
            f"the task must be one such as NextCharacter or SequentialDigits; got {type(task).__name__}."
        )


def check_divisible(batch_size: int, processes: int) -> None:
    """Raise an error for a batch that the processes cannot share equally."""
    if batch_size % processes:
        raise ValueError(
            f"batch_size must be a multiple of the {processes} processes, which take equal shares; got "
            f"{batch_size}."
        )
