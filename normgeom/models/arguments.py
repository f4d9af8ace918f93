"""The checks of what the recurrent cells and layers are given."""

import math
import operator
from numbers import Real
from typing import Any, SupportsIndex

import torch


def as_sizes(**sizes: SupportsIndex) -> tuple[int, ...]:
    """Return sizes as integers; raise an error for one that is no positive integer."""
    for name, size in sizes.items():
        if not hasattr(size, "__index__") or isinstance(size, bool) or operator.index(size) < 1:
            raise ValueError(f"{name} must be an integer of at least 1; got {size!r}.")
    return tuple(operator.index(size) for size in sizes.values())


def check_norm_options(eps: float, dtype: torch.dtype | None, **initial: float) -> None:
    """Raise an error for an eps below 0, an initial gain or bias that is not finite, or no real type."""
    for name, value in initial.items():
        if not _is_finite(value):
            raise ValueError(f"{name} must be a finite number; got {value!r}.")
    if not (_is_finite(eps) and eps >= 0):
        raise ValueError(f"eps must be a finite number of at least 0; got {eps!r}.")
    if dtype is not None and not dtype.is_floating_point:
        raise TypeError(f"dtype must be of real floating-point numbers; got {dtype}.")


def check_dropout(dropout: float) -> None:
    """Raise an error for what is no probability."""
    if not (_is_finite(dropout) and 0 <= dropout <= 1):
        raise ValueError(f"dropout must be a probability from 0 to 1; got {dropout!r}.")


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def is_ids(x: torch.Tensor) -> bool:
    """Whether an input is made of ids of one-hot inputs."""
    return not (x.is_floating_point() or x.is_complex())


def check_input(x: torch.Tensor, inputs: int) -> None:
    """Raise an error for features of another size, or for ids out of range where that can be seen."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"the input must be a tensor; got {type(x).__name__}.")
    if x.is_complex() or x.dtype == torch.bool:
        raise TypeError(f"the input must be of real features or of integer ids; got {x.dtype}.")
    if not is_ids(x):
        if x.ndim == 0 or x.shape[-1] != inputs:
            raise ValueError(f"the last axis of the input must have size {inputs}; got {tuple(x.shape)}.")
    elif x.numel() and _readable(x):
        ids = x.long()  # not every type of integers has a minimum
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= inputs:
            raise ValueError(f"ids must be from 0 to {inputs - 1}; got {low} to {high}.")


def _readable(x: torch.Tensor) -> bool:
    """Whether values can be read at no cost: on the CPU, outside of transforms and compilation."""
    if torch.compiler.is_compiling() or type(x) is not torch.Tensor:
        return False
    return x.device.type == "cpu" and torch._C._functorch.peek_interpreter_stack() is None


def check_state(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise an error for a state of another shape."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a tensor of shape {shape}; got {type(value).__name__}.")
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}; got {tuple(value.shape)}.")


def check_like(weight: torch.Tensor, **values: torch.Tensor) -> None:
    """Raise an error for what is on another device than a weight, or of another type outside of autocast."""
    dtype = weight.dtype
    for name, value in values.items():
        if value.device != weight.device:
            raise ValueError(
                f"{name} must be on the device of the weights, {weight.device}; got {value.device}. "
                f"Move it with .to({str(weight.device)!r})."
            )
        if value.dtype == dtype or (name == "input" and is_ids(value)):
            continue
        if not torch._C._is_any_autocast_enabled():
            raise TypeError(
                f"{name} must have the dtype of the weights, {dtype}; got {value.dtype}. "
                f"Convert it with .to({dtype}), or the module with .to({value.dtype})."
            )


def as_states(state: Any, pair: bool) -> tuple[torch.Tensor, ...]:
    """Return a given state as a tuple."""
    if not pair:
        return (state,)
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError(f"the state must be a pair (h, c); got {type(state).__name__}.")
    return tuple(state)


def step_arguments(cell: Any, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, ...]:
    """Return the state of a single step, zeros if none is given, after checking both."""
    check_input(x, cell.input_size)
    cases = x.shape if is_ids(x) else x.shape[:-1]
    if len(cases) > 1:
        raise ValueError(f"one step takes cases along one axis at most; got an input of {tuple(x.shape)}.")
    shape, weight = (*cases, cell.hidden_size), next(cell.parameters())
    if state is None:
        check_like(weight, input=x)
        zero = torch.zeros(shape, device=x.device, dtype=weight.dtype)
        return (zero,) * (2 if cell.has_cell_state else 1)
    states = as_states(state, cell.has_cell_state)
    for name, value in zip(("h", "c"), states, strict=False):
        check_state(name, value, shape)
    check_like(weight, input=x, **dict(zip(("h", "c"), states, strict=False)))
    return states
