"""A pass over a sequence and its gradient: products by torch, the rest of each step by the C kernel.

The gradient keeps the sensitivities of all steps, then makes one product for each weight.
"""

import math

import torch

from normgeom.models.buffers import Buffers, in_pieces
from normgeom.models.fused.layer import Held, Spec

Tensors = dict[str, torch.Tensor]
# The pointer that gets the gradient of each vector of a cell.
_GRADIENTS = {
    "bias": "grad_shift",
    "norm_input.gain": "grad_gain_input",
    "norm_input.bias": "grad_shift",
    "norm_recurrent.gain": "grad_gain_recurrent",
    "norm_recurrent.bias": "grad_shift",
    "norm_joint.gain": "grad_gain_recurrent",
    "norm_joint.bias": "grad_shift",
    "norm_cell.gain": "grad_gain_cell",
    "norm_cell.bias": "grad_bias_cell",
}


def forward_pass(spec: Spec, given: Tensors) -> Held:
    """Run all steps; the states are in the tensors of what is returned."""
    weight, h = given["weight_recurrent"], given["h"]
    (cases, units), steps, stack = h.shape, len(given["x"]), len(weight)
    held = Held(spec.struct(units, cases), Buffers.for_gradient(weight))
    shapes = _kept_shapes(spec, steps, cases, units, stack)
    if "weight_input" not in given:
        del shapes["projected"]
        held.put(projected=given["x"].contiguous())
    held.put(**held.buffers.take_all(**shapes))
    if "weight_input" in given:
        _project(given, held.tensors["projected"])
    held.layer.summed_stride = cases * stack if spec.keeps_summed else 0
    for name, state in (("hidden", h), ("cell", given.get("c"))):
        if state is not None:
            held.tensors[name][0].copy_(state)
    held.put(**_vectors(spec, given, stack))
    # a product with a transposed matrix is slower than with a copy of it
    step, address, transposed = spec.forward, held.address, weight.t().contiguous()
    targets = held.tensors["summed"].unbind(0) * (1 if spec.keeps_summed else steps)
    for t, (before, target) in enumerate(zip(held.tensors["hidden"].unbind(0), targets, strict=False)):
        torch.mm(before, transposed, out=target)
        step(address, t)
    return held


def _kept_shapes(spec: Spec, steps: int, cases: int, units: int, stack: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what a pass keeps, by the name of the pointer."""
    shapes: dict[str, tuple[int, ...]] = {
        "summed": (steps if spec.keeps_summed else 1, cases, stack),
        "projected": (steps, cases, stack),
        "activated": (steps, cases, stack),
        "hidden": (steps + 1, cases, units),
        "scale_input": (steps, cases, len(spec.segments)),
        "scale_recurrent": (steps, cases, len(spec.segments)),
    }
    if spec.cell == "lstm":
        shapes |= {"cell": (steps + 1, cases, units), "squashed": (steps, cases, units)}
        shapes |= {"scale_cell": (steps, cases), "mean_cell": (steps, cases)}
    return shapes


def _project(given: Tensors, out: torch.Tensor) -> None:
    """Put the products of the input where the kernel may normalize them in place."""
    x = given["x"]
    torch.mm(x.reshape(-1, x.shape[-1]), given["weight_input"].t(), out=out.view(-1, out.shape[-1]))


def _vectors(spec: Spec, given: Tensors, stack: int) -> Tensors:
    """The gains and biases that the kernel reads: neutral ones where there are none, one case's of many."""
    like = given["weight_recurrent"]
    single = {k: v[0] if k in _GRADIENTS and v.ndim == 2 else v for k, v in given.items()}
    one, shift, second = like.new_ones(stack), like.new_zeros(stack), like.new_zeros(stack)
    for name in ("bias", "norm_input.bias", "norm_recurrent.bias", "norm_joint.bias"):
        if name in single:
            apart = spec.cell == "gru" and name == "norm_recurrent.bias"
            (second if apart else shift).add_(single[name])
    gain = single.get("norm_joint.gain", single.get("norm_recurrent.gain", one))
    found = {"gain_input": single.get("norm_input.gain", one), "gain_recurrent": gain}
    found |= {"shift": shift, "shift_recurrent": second}
    if "norm_cell.gain" in single:
        found |= {"gain_cell": single["norm_cell.gain"], "bias_cell": single["norm_cell.bias"]}
    return {name: value.contiguous() for name, value in found.items()}


def backward_pass(
    spec: Spec,
    forward: Held,
    given: Tensors,
    grads: tuple[torch.Tensor | None, torch.Tensor | None],
    wanted: set[str],
) -> Tensors:
    """Return the gradients of the wanted inputs, from those of the outputs and of the cell states."""
    weight = given["weight_recurrent"]
    steps, cases, stack = forward.tensors["projected"].shape
    held = forward.again(Buffers(weight))
    # what is returned is memory of its own
    returned = "weight_input" not in given or wanted & {"tap_input", "tap_recurrent"}
    names = ("grad_summed",) if spec.same_gradients else ("grad_summed", "grad_projected")
    shapes = dict.fromkeys(names, (steps, cases, stack))
    if returned:
        held.put(**{name: weight.new_empty(shape) for name, shape in shapes.items()})
    else:
        held.put(**held.buffers.take_all(**shapes))
    summed = held.tensors["grad_summed"]
    if spec.same_gradients:
        held.put(grad_projected=summed)
    held.layer.each_case = any(given[name].ndim == 2 for name in wanted & _GRADIENTS.keys())
    carried = _zeros_and_given(spec, held, grads, given)
    step, address = spec.backward, held.address
    for t, sensitivity in zip(range(steps - 1, -1, -1), reversed(summed.unbind(0)), strict=True):
        step(address, t)
        if spec.cell == "gru":
            carried.addmm_(sensitivity, weight)
        else:
            torch.mm(sensitivity, weight, out=carried)
    return _gradients(spec, given, held.tensors, wanted)


def _zeros_and_given(
    spec: Spec, held: Held, grads: tuple[torch.Tensor | None, torch.Tensor | None], given: Tensors
) -> torch.Tensor:
    """Set what the backward steps start from and add to; return the gradient carried to the step before."""
    stack, (cases, units) = len(given["weight_recurrent"]), given["h"].shape
    # one row for all cases stays in the nearest cache
    rows, states = cases if held.layer.each_case else 1, (cases, units)
    stacked = ("grad_shift", "grad_shift_recurrent", "grad_gain_input", "grad_gain_recurrent")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(stacked, (rows, stack))
    shapes |= {"grad_gain_cell": (rows, units), "grad_bias_cell": (rows, units), "row": (2 * stack,)}
    shapes |= {"grad_hidden": states, "carried_cell": states}
    held.put(**in_pieces(given["weight_recurrent"].new_zeros, shapes))
    outputs, cells = (None if g is None else g.contiguous() for g in grads)
    if cells is not None and not spec.every_cell:
        held.tensors["carried_cell"].add_(cells[0])
        cells = None
    held.put(grad_outputs=outputs, grad_cells=cells)
    return held.tensors["grad_hidden"]


def _gradients(spec: Spec, given: Tensors, held: Tensors, wanted: set[str]) -> Tensors:
    """The gradients of the inputs from the sensitivities: one product for each weight."""
    summed, projected = held["grad_summed"].flatten(0, 1), held["grad_projected"].flatten(0, 1)
    x = given["x"]
    out = {"h": held["grad_hidden"], "c": held["carried_cell"]}
    out |= {"tap_recurrent": held["grad_summed"], "tap_input": held["grad_projected"]}
    if "weight_recurrent" in wanted:
        out["weight_recurrent"] = summed.t() @ held["hidden"][:-1].flatten(0, 1)
    if "weight_input" in wanted:
        out["weight_input"] = projected.t() @ x.reshape(math.prod(x.shape[:-1]), -1)
    if "x" in wanted:
        product = (projected @ given["weight_input"]).view(x.shape) if "weight_input" in given else None
        out["x"] = held["grad_projected"] if product is None else product
    sums: Tensors = {}
    for name in wanted & _GRADIENTS.keys():
        apart = spec.cell == "gru" and name == "norm_recurrent.bias"
        kind = "grad_shift_recurrent" if apart else _GRADIENTS[name]
        if given[name].ndim == 2:
            out[name] = held[kind].clone()
            continue
        sums[kind] = sums[kind].clone() if kind in sums else held[kind].sum(0)
        out[name] = sums[kind]
    return {name: value for name, value in out.items() if name in wanted}
