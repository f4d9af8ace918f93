"""What a module or function takes, found out by its signature and by calling it: arguments, and units."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)


def takes_arguments(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments; one without a signature is believed to.

    >>> takes_arguments(lambda weight, data: data, 2), takes_arguments(lambda data: data, 2)
    (True, False)
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def fitting_units(module: nn.Module, call: Callable[[int], Any]) -> int | None:
    """Return the units that a module's own arrays fix: the one length of an axis that it takes alone.

    Args:
        module: the module.
        call: applies the module to summed inputs of so many units, on copies of its state.
    """
    arrays = [*module.parameters(), *module.buffers()]
    lengths = sorted({length for array in arrays for length in array.shape if length > 1})
    fits = [n for n in lengths if _accepts(call, n) and not _accepts(call, n + 1)]
    return fits[0] if len(fits) == 1 else None


def _accepts(call: Callable[[int], Any], units: int) -> bool:
    """Whether a call raises nothing; the random state is left alone."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            call(units)
    except REFUSALS:
        return False
    return True
