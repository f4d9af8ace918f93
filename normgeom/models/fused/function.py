"""The pass over a sequence as a function of autograd, and when it may be taken."""

from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode

from normgeom.models.cells import Cell, DRAWLSTMCell, LNGRUCell, LNLSTMCell, LNRNNCell, State
from normgeom.models.fused.build import library
from normgeom.models.fused.layer import Spec
from normgeom.models.fused.passes import backward_pass, forward_pass
from normgeom.models.places import GainBiasNorm, Shift

_KERNELS: dict[type[Cell], str] = {
    LNRNNCell: "rnn",
    LNLSTMCell: "lstm",
    DRAWLSTMCell: "lstm",
    LNGRUCell: "gru",
}


class FusedScan(torch.autograd.Function):
    """`outputs, cells = FusedScan.apply(spec, cell, names, *inputs)`.

    The gradient is the kernel's. Where it must have a derivative itself, or runs under a transform, it is
    that of the plain operations, run again.
    """

    @staticmethod
    def forward(ctx: Any, spec: Spec, cell: Cell, names: tuple[str, ...], *inputs: torch.Tensor) -> Any:
        """Run the steps, and keep what the gradient needs."""
        held = forward_pass(spec, dict(zip(names, inputs, strict=True)))
        ctx.spec, ctx.cell, ctx.names, ctx.held = spec, cell, names, held
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        # copies, since the kernel reads its own again and a caller may write into the outputs
        outputs, cells = held.tensors["hidden"][1:].clone(), held.tensors.get("cell")
        if cells is not None:
            cells = (cells[1:] if spec.every_cell else cells[-1:]).clone()
        return outputs, cells

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        """Return the gradients."""
        given = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        wanted = {n for n, need in zip(ctx.names, ctx.needs_input_grad[3:], strict=True) if need}
        if all(g is None for g in grads):
            found: dict[str, torch.Tensor] = {}
        elif torch.is_grad_enabled() or _watched(*(g for g in grads if g is not None)):
            found = _plain_gradients(ctx.spec, ctx.cell, given, grads, wanted)
        else:
            found = backward_pass(ctx.spec, ctx.held, given, (grads[0], grads[1]), wanted)
        return (None, None, None, *(found.get(name) for name in ctx.names))


class _PlainPass(nn.Module):
    """The plain operations of a pass, as a module whose parameters `functional_call` can replace."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, given: dict[str, torch.Tensor], every_cell: bool) -> list[torch.Tensor]:
        """Return outputs and cell states, in the form of `FusedScan`."""
        into, taps = given["x"], given.get("tap_recurrent")
        if "weight_input" in given:
            into = self.cell.project(into, given.get("tap_input"))
        state: State = tuple(given[name] for name in ("h", "c") if name in given)
        states = self.cell.run(into, state, taps)
        kinds = [torch.stack(kind) for kind in zip(*states, strict=True)]
        return [kinds[0], *(kind if every_cell else kind[-1:] for kind in kinds[1:])]


def _plain_gradients(spec: Spec, cell: Cell, given: Any, grads: Any, wanted: set[str]) -> Any:
    """Differentiate the plain operations on aliases of the inputs: no gradient runs on into their past."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        given = {name: value.view_as(value) if name in wanted else value for name, value in given.items()}
        own = {f"cell.{name}" for name, _ in cell.named_parameters()}
        parameters = {f"cell.{name}": value for name, value in given.items() if f"cell.{name}" in own}
        results = functional_call(_PlainPass(cell), parameters, (given, spec.every_cell))
        pairs = [(r, g) for r, g in zip(results, grads, strict=False) if g is not None]
        names = sorted(wanted)
        found = torch.autograd.grad(
            [r for r, _ in pairs],
            [given[name] for name in names],
            [g for _, g in pairs],
            create_graph=differentiable,
            allow_unused=True,
        )
    return dict(zip(names, found, strict=True))


def fused_scan(cell: Cell, x: torch.Tensor, state: State, taps: Any, every_cell: bool) -> Any:
    """Return outputs and cell states (or None) of a pass, or None where the plain operations must do it."""
    kind = _KERNELS.get(type(cell))
    if torch.compiler.is_compiling() or kind is None or not _as_made(cell):
        return None
    if kind == "gru" and cell.placement.joint:
        return None
    given = dict(zip(("h", "c"), state, strict=False)) | _parameters(cell)
    from_products = not x.is_floating_point()
    if _watched(x, *given.values()) or not _on_cpu([*given.values(), *([] if from_products else [x])]):
        return None
    kernel = library(cell.weight_input.dtype)
    if kernel is None:
        return None
    if taps is not None:
        given["tap_recurrent"] = taps.recurrent
    if from_products:
        given["x"] = cell.project(x, None if taps is None else taps.input)
        apart = () if cell.placement.joint else ("norm_input.gain", "norm_input.bias", "bias")
        given = {name: value for name, value in given.items() if name not in ("weight_input", *apart)}
    else:
        given |= {"x": x} if taps is None else {"x": x, "tap_input": taps.input}
    spec = _spec(kernel, kind, cell, from_products, every_cell)
    return FusedScan.apply(spec, cell, tuple(given), *given.values())


def _as_made(cell: Cell) -> bool:
    """Whether every part is as it was made, and nobody wants to see the calls of one."""
    parts = cell._modules.values()
    if any(type(part) not in (GainBiasNorm, Shift, nn.Identity) for part in parts):
        return False
    return not any(p._forward_hooks or p._forward_pre_hooks for p in (cell, *parts) if p is not None)


def _parameters(cell: Cell) -> dict[str, torch.Tensor]:
    """The parameters by name."""
    found: dict[str, torch.Tensor] = {k: v for k, v in cell._parameters.items() if v is not None}
    for name, part in cell._modules.items():
        found |= {f"{name}.{k}": v for k, v in part._parameters.items()}  # type: ignore[union-attr, misc]
    return found


def _on_cpu(values: list[torch.Tensor]) -> bool:
    """Whether all is dense, on the CPU and of one type."""
    dtype = values[0].dtype
    return all(v.dtype == dtype and v.device.type == "cpu" and v.layout == torch.strided for v in values)


def _spec(kernel: Any, kind: str, cell: Cell, from_products: bool, every_cell: bool) -> Spec:
    """What the kernel must know of a cell."""
    place, parts = cell.placement, cell._modules
    recurrent = parts["norm_joint" if place.joint else "norm_recurrent"]
    return Spec(
        kernel=kernel,
        cell=kind,
        gates=cell.gates,
        segments=cell.segments,
        norm_input=place.input and not place.joint and not from_products,
        norm_recurrent=place.recurrent and not place.joint,
        norm_joint=place.joint,
        norm_cell=place.cell,
        eps_input=getattr(parts.get("norm_input"), "eps", 0.0),
        eps_recurrent=getattr(recurrent, "eps", 0.0),
        eps_cell=getattr(parts.get("norm_cell"), "eps", 0.0),
        every_cell=every_cell,
    )


def _watched(*values: torch.Tensor) -> bool:
    """Whether a transform, a mode or a tensor's own type must see the single operations."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if torch.autograd.forward_ad._current_level >= 0 or torch.is_autocast_enabled("cpu"):
        return True
    if _get_current_dispatch_mode() is not None or torch.jit.is_tracing():
        return True
    modes = _get_current_function_mode_stack()
    return any(type(mode) is not DeviceContext for mode in modes) or any(
        type(v) not in (torch.Tensor, nn.Parameter) for v in values
    )
