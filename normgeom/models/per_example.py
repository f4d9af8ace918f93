"""Gradients of every case apart, from one recurrence.

The sensitivities of the products at all steps are kept, then one batched product a weight makes the
gradients. Gains and biases are given to each case as its own.
"""

from typing import Any

import torch
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence

from normgeom.models.cell import Cell, State
from normgeom.models.given import Taps
from normgeom.models.recurrent import Recurrent

Gradients = dict[str, torch.Tensor]


class TappedCells:
    """What the cells of a pass saw, and the zeros that were added to their products."""

    def __init__(self) -> None:
        self.taps: dict[str, Taps] = {}
        self.seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, name: str, cell: Cell, x: torch.Tensor, state: State) -> Taps:
        """Return the zeros for a cell, and remember its input and initial hidden state."""
        zero = cell.weight_recurrent.new_zeros(1)
        shape = (*x.shape[:2], len(cell.weight_recurrent))
        self.taps[name] = Taps(zero.expand(shape).requires_grad_(), zero.expand(shape).requires_grad_())
        self.seen[name] = x.detach(), state[0].detach()
        return self.taps[name]

    def keep(self, name: str, outputs: torch.Tensor) -> None:
        """Put the hidden states that each step started from in place of the initial one."""
        x, first = self.seen[name]
        self.seen[name] = x, torch.cat([first[None], outputs.detach()[:-1]])


def per_example_gradients(core: Recurrent, x: Any, cotangent: Any, *, state: Any = None) -> Gradients:
    """Return the gradient of `<cotangent_n, outputs_n>` in every parameter, for every case n.

    `g_n = sum over steps of (sensitivity of the product)(what it multiplied)^T`, by one batched product for
    each weight: the cost is that of an ordinary gradient and of writing the result.

    Args:
        core: an `LNRNN`, `LNLSTM`, `LNGRU` or `DRAWLSTM`, in the mode it is in.
        x: an input of the core with an axis of cases: (steps, cases, inputs), ids, or a packed sequence.
        cotangent: of the outputs, in their form; the gradient of each case's loss in its outputs.
        state: the initial state, as the core takes it.

    Returns:
        (cases, *shape) for the name of every parameter of the core, cases in the order of the input.

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
    cases = _cases(core, x)
    own = {name: value.detach() for name, value in core.named_parameters()}
    vectors = {k: v.expand(cases, -1).requires_grad_() for k, v in own.items() if v.ndim == 1}
    tapped = TappedCells()
    with torch.enable_grad():
        outputs, _ = functional_call(core, own | vectors, (x, state), {"taps": tapped})
        leaves = [*vectors.values(), *(t for tap in tapped.taps.values() for t in (tap.input, tap.recurrent))]
        found = torch.autograd.grad(*_paired(outputs, leaves, cotangent))
    each = dict(zip(vectors, found[: len(vectors)], strict=True))
    pairs = zip(found[len(vectors) :: 2], found[len(vectors) + 1 :: 2], strict=True)
    for (name, (into, before)), (by_input, by_recurrent) in zip(tapped.seen.items(), pairs, strict=True):
        each[f"{name}.weight_input"] = _products(by_input, into, own[f"{name}.weight_input"])
        each[f"{name}.weight_recurrent"] = _products(by_recurrent, before, own[f"{name}.weight_recurrent"])
    order = x.unsorted_indices if isinstance(x, PackedSequence) else None
    return {name: each[name] if order is None else each[name][order] for name in own}


def _cases(core: Recurrent, x: Any) -> int:
    """Return the number of cases of an input."""
    if isinstance(x, PackedSequence):
        return int(x.batch_sizes[0])
    axes = x.ndim - 1 if x.is_floating_point() else x.ndim
    if axes != 2:
        raise ValueError(f"the input must have an axis of cases; got shape {tuple(x.shape)}.")
    return x.shape[0] if core.batch_first else x.shape[1]


def _paired(outputs: Any, leaves: list[torch.Tensor], cotangent: Any) -> tuple[Any, Any, Any]:
    """Return the arguments of the gradient after checking that the cotangent has the outputs' form."""
    if isinstance(outputs, PackedSequence) != isinstance(cotangent, PackedSequence):
        raise TypeError(
            f"the cotangent must be of the outputs' kind, {type(outputs).__name__}; "
            f"got {type(cotangent).__name__}."
        )
    if isinstance(outputs, PackedSequence):
        outputs, cotangent = outputs.data, cotangent.data
    if outputs.shape != cotangent.shape:
        raise ValueError(
            f"the cotangent must have the outputs' shape {tuple(outputs.shape)}; "
            f"got {tuple(cotangent.shape)}."
        )
    return outputs, leaves, cotangent


def _products(sensitivity: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the sum over steps of `sensitivity x^T` for every case: (cases, *weight.shape)."""
    if x.is_floating_point():
        return torch.bmm(sensitivity.permute(1, 2, 0), x.transpose(0, 1))
    cases, inputs = x.shape[1], weight.shape[1]
    rows = (torch.arange(cases, device=x.device) * inputs + x).flatten()
    columns = sensitivity.new_zeros(cases * inputs, len(weight)).index_add_(
        0, rows, sensitivity.flatten(0, 1)
    )
    return columns.view(cases, inputs, -1).transpose(1, 2)
