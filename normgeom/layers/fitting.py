"""What a module or function takes, found out by its signature and by calling it: arguments, and units."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

REFUSALS = (  # what a user's code raises for arguments that it does not take
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
LIKELY = (5, 8, 12)  # numbers of units that a module without arrays is tried with


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
    taken = [n for n in _lengths(module) if _accepts(call, n)]
    fits = [n for n in taken if not (_accepts(call, n + 1) or _accepts(call, 2 * n))]
    return fits[0] if len(fits) == 1 else None


def takes_some_units(module: nn.Module, call: Callable[[int], Any], units: int | None) -> bool:
    """Return whether a module takes summed inputs of the units it is for, or of some likely number.

    Args:
        module: the module.
        call: applies the module to summed inputs of so many units, on copies of its state.
        units: the number that the module is for, if that is known.
    """
    return any(_accepts(call, n) for n in ([*_lengths(module), *LIKELY] if units is None else [units]))


def _lengths(module: nn.Module) -> list[int]:
    """The lengths of the axes of a module's own arrays, but for 1."""
    arrays = [*module.parameters(), *module.buffers()]
    return sorted({length for array in arrays for length in array.shape if length > 1})


def _accepts(call: Callable[[int], Any], units: int) -> bool:
    """Whether a call raises nothing; the random state is left alone."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            call(units)
    except REFUSALS:
        return False
    return True
