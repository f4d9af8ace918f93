"""Data as batches: a tensor, a tuple of tensors, or an iterable of batches such as a DataLoader."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from normgeom.geometry.evaluator import cases


def batches(data: Any, device: torch.device | None = None) -> Iterator[tuple[Any, Any]]:
    """Yield (inputs, targets or None) for each batch.

    A tensor, or a tuple of tensors (several inputs, each with the cases first), is one batch. Anything else
    is iterated: a batch that is a list or tuple is (inputs, targets, ...), as a DataLoader gives it.

    Raises:
        TypeError: if the data is none of these.
    """
    if isinstance(data, torch.Tensor | tuple):
        yield _moved(data, device), None
        return
    if not isinstance(data, Iterable) or isinstance(data, dict):
        raise TypeError(
            "data must be a tensor, a tuple of tensors with the cases first, or an iterable of batches; "
            f"got {type(data).__name__}."
        )
    for batch in data:
        inputs, targets = (batch[0], batch[1] if len(batch) > 1 else None) if isinstance(
            batch, list | tuple
        ) else (batch, None)  # fmt: skip
        yield _moved(inputs, device), _moved(targets, device)


def count(data: Any) -> int | None:
    """Return the number of batches, or None if it is not known."""
    if isinstance(data, torch.Tensor | tuple):
        return 1
    return len(data) if hasattr(data, "__len__") else None


def case_slices(inputs: Any, chunk: int) -> list[slice]:
    """Return the slices of at most `chunk` cases."""
    total = cases(inputs)
    return [slice(start, min(start + chunk, total)) for start in range(0, total, chunk)]


def _moved(value: Any, device: torch.device | None) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_moved(part, device) for part in value)
    return value.to(device) if isinstance(value, torch.Tensor) and device is not None else value
