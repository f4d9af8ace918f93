"""Hooks of a cell that is run over whole sequences: they are called once a pass, not once a step."""

from typing import Any

import torch

from normgeom.models.cell import Cell, State


def before_pass(cell: Cell, x: torch.Tensor, state: State) -> None:
    """Call a cell's forward pre-hooks with the inputs and the initial state of a pass.

    Pruning, spectral norm and weight norm compute the weight anew in such a hook.
    """
    if cell._backward_hooks or cell._backward_pre_hooks:
        raise ValueError(
            f"a {type(cell).__name__} that is run over a sequence must have no backward hook, since it is "
            "never called; got one. Remove it, and hang it on the layer, or on a tensor."
        )
    inputs = x, _form(state)
    for key, hook in [*cell._forward_pre_hooks.items()]:
        with_kwargs = key in cell._forward_pre_hooks_with_kwargs
        _check_none(hook(cell, inputs, {}) if with_kwargs else hook(cell, inputs))


def after_pass(cell: Cell, x: torch.Tensor, state: State, result: tuple[torch.Tensor, State]) -> None:
    """Call a cell's forward hooks with the arguments of a pass, its outputs and its final state."""
    inputs, outputs = (x, _form(state)), (result[0], _form(result[1]))
    for key, hook in [*cell._forward_hooks.items()]:
        with_kwargs = key in cell._forward_hooks_with_kwargs
        _check_none(hook(cell, inputs, {}, outputs) if with_kwargs else hook(cell, inputs, outputs))


def _form(state: State) -> Any:
    """The form in which a cell takes and returns its state."""
    return state if len(state) > 1 else state[0]


def _check_none(returned: object) -> None:
    if returned is not None:
        raise ValueError(
            "a hook on a cell that is run over a sequence must return None; "
            f"got {type(returned).__name__}. Change inputs and outputs by a hook on the layer."
        )
