"""Gradients of every case apart, from one recurrence.

The sensitivities of the products at all steps are kept, then one batched product a weight makes the
gradients. Gains and biases are given to each case as its own. Where a weight is computed from parameters,
the gradients go on to them, case by case.
"""

from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from normgeom.copies import twin
from normgeom.models.recurrent import Recurrent
from normgeom.models.tapped import TappedCells

Gradients = dict[str, torch.Tensor]


def per_example_gradients(core: Recurrent, x: Any, cotangent: Any, *, state: Any = None) -> Gradients:
    """Return the gradient of `<cotangent_n, outputs_n>` in every parameter, for every case n.

    `g_n = sum over steps of (sensitivity of the product)(what it multiplied)^T`, by one batched product for
    each weight: the cost is that of an ordinary gradient and of writing the result.

    Args:
        core: an `LNRNN`, `LNLSTM`, `LNGRU` or `DRAWLSTM`, in the mode it is in. Its weights may be pruned,
            parametrized or tied.
        x: an input of the core with an axis of cases: (steps, cases, inputs), ids, or a packed sequence.
        cotangent: of the outputs, in their form; the gradient of each case's loss in its outputs.
        state: the initial state, as the core takes it.

    Returns:
        (cases, *shape) for the name of every parameter of the core, cases in the order of the input. Where
        a weight is computed from parameters (pruning, weight norm), these have the gradient.

    Raises:
        TypeError: if the core is none of normgeom's, or input and cotangent are not of one kind.
        ValueError: if the input has no axis of cases, or the cotangent is not of the outputs' shape.

    >>> from normgeom.models.recurrent import LNLSTM
    >>> lstm, x = LNLSTM(3, 4), torch.randn(7, 5, 3)
    >>> each = per_example_gradients(lstm, x, torch.ones(7, 5, 4))
    >>> each["layer0.weight_input"].shape
    torch.Size([5, 16, 3])
    >>> lstm(x)[0].sum().backward()
    >>> torch.allclose(each["layer0.weight_input"].sum(0), lstm.layer0.weight_input.grad, atol=1e-4)
    True
    """
    if not isinstance(core, Recurrent):
        raise TypeError(f"the core must be a recurrent layer of normgeom; got {type(core).__name__}.")
    _check_cases(x)
    with torch.inference_mode(False), torch.enable_grad():
        own, tapped = twin(core), TappedCells()
        outputs, _ = own(x, state, taps=tapped)
        each = tapped.gradients(*_paired(outputs, cotangent))
        found = _in_parameters(each, tapped.tensors, dict(own.named_parameters()))
    order = x.unsorted_indices if isinstance(x, PackedSequence) else None
    return found if order is None else {name: value[order] for name, value in found.items()}


def _check_cases(x: Any) -> None:
    """Raise an error for an input without an axis of cases."""
    if isinstance(x, torch.Tensor) and x.ndim - x.is_floating_point() != 2:
        raise ValueError(f"the input must have an axis of cases; got shape {tuple(x.shape)}.")


def _paired(outputs: Any, cotangent: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both as tensors after checking that the cotangent has the outputs' form."""
    if isinstance(outputs, PackedSequence) != isinstance(cotangent, PackedSequence):
        raise TypeError(
            f"the cotangent must be of the outputs' kind, {type(outputs).__name__}; "
            f"got {type(cotangent).__name__}."
        )
    if not isinstance(cotangent, PackedSequence | torch.Tensor):
        raise TypeError(f"the cotangent must be a tensor; got {type(cotangent).__name__}.")
    if isinstance(outputs, PackedSequence):
        outputs, cotangent = outputs.data, cotangent.data
    if outputs.shape != cotangent.shape:
        raise ValueError(
            f"the cotangent must have the outputs' shape {tuple(outputs.shape)}; "
            f"got {tuple(cotangent.shape)}."
        )
    return outputs, cotangent


def _in_parameters(each: Gradients, tensors: Gradients, parameters: Gradients) -> Gradients:
    """Return the gradients in parameters from those in tensors, which are parameters or come from some."""
    names, found = {id(value): name for name, value in parameters.items()}, Gradients()
    for name, value in tensors.items():
        if id(value) in names:
            _add(found, names[id(value)], each[name])
    computed = [k for k, value in tensors.items() if id(value) not in names and value.requires_grad]
    if computed:
        _add_through(found, [each[k] for k in computed], [tensors[k] for k in computed], parameters)
    cases = len(next(iter(each.values())))
    return {k: found[k] if k in found else v.new_zeros(cases, *v.shape) for k, v in parameters.items()}


def _add_through(
    found: Gradients, each: list[torch.Tensor], tensors: list[torch.Tensor], parameters: Gradients
) -> None:
    """Add the gradients in the parameters that tensors come from."""
    rows = [
        torch.autograd.grad(tensors, list(parameters.values()), case, retain_graph=True, allow_unused=True)
        for case in zip(*each, strict=True)
    ]
    for name, column in zip(parameters, zip(*rows, strict=True), strict=True):
        if column[0] is not None:
            _add(found, name, torch.stack(column))


def _add(found: Gradients, name: str, value: torch.Tensor) -> None:
    found[name] = found[name] + value if name in found else value
