"""Data as batches: a tensor, a tuple of tensors, or an iterable of batches such as a DataLoader."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from normgeom.geometry.arguments import check_inputs
from normgeom.geometry.evaluator import cases


def batches(data: Any, device: torch.device | None = None) -> Iterator[tuple[Any, Any]]:
    """Yield (inputs, targets or None) for each batch.

    A tensor, or a tuple of tensors (several inputs, each with the cases first), is one batch. Anything else
    is iterated: a batch that is a list or tuple is (inputs, targets, ...), as a DataLoader gives it.

    Raises:
        TypeError: if the data is none of these.
    """
    if isinstance(data, torch.Tensor | tuple):
        check_inputs(data)
        yield _moved(data, device), None
        return
    if not isinstance(data, Iterable) or isinstance(data, dict | np.ndarray):
        check_inputs(data)
    for batch in data:
        inputs, targets = (batch[0], batch[1] if len(batch) > 1 else None) if isinstance(
            batch, list | tuple
        ) else (batch, None)  # fmt: skip
        inputs = tuple(inputs) if isinstance(inputs, list) else inputs
        check_inputs(inputs)
        yield _moved(inputs, device), _moved(targets, device)


def first_batch(data: Any, device: torch.device | None = None) -> Any:
    """Return the inputs of the first batch of data that will be read again.

    Raises:
        TypeError: for an iterator, which can be read only once.
        ValueError: if there is no batch.
    """
    if isinstance(data, Iterator):
        raise TypeError(
            "data is read more than once here, and an iterator only once; "
            "give a list of batches or a DataLoader."
        )
    for inputs, _ in batches(data, device):
        return inputs
    raise ValueError("data must hold at least one case; got none.")


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
