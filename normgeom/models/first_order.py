"""A pass by plain operations whose first derivative is faster than that of its definition.

On any device: torch's fused layer norm, and one product for the recurrent weight's gradient in place of one
a step. Derivatives of the gradient are those of the definition, run again.
"""

from typing import Any

import torch

from normgeom.models.cell import Cell
from normgeom.models.given import plain_gradients, plain_pass
from normgeom.models.watchers import watched


class FirstOrderScan(torch.autograd.Function):
    """`outputs, cells = FirstOrderScan.apply(cell, every_cell, names, *tensors)`."""

    @staticmethod
    def forward(
        ctx: Any, cell: Cell, every_cell: bool, names: tuple[str, ...], *tensors: torch.Tensor
    ) -> Any:
        """Run the pass on leaves of its own, with the graph of its gradient."""
        ctx.cell, ctx.every_cell, ctx.names = cell, every_cell, names
        needs = dict(zip(names, ctx.needs_input_grad[3:], strict=True))
        ctx.set_materialize_grads(False)
        seen: list[torch.Tensor] = []
        with torch.enable_grad():
            given = {
                name: value.detach().requires_grad_(needs[name] and name not in _BY_PRODUCT)
                for name, value in zip(names, tensors, strict=True)
            }
            through = any(needs.values())
            with torch.set_grad_enabled(through):
                results = plain_pass(cell, given, every_cell, first_order=True, seen=seen)
        ctx.leaves = [name for name in names if given[name].requires_grad]
        ctx.counts = len(tensors), len(results)
        # a graph of one's own is freed with the saved tensors
        ctx.save_for_backward(*tensors, *results, *[given[name] for name in ctx.leaves], *seen)
        outputs = [r.detach() for r in results]
        return outputs[0], outputs[1] if len(outputs) > 1 else None

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        """Return the gradients."""
        saved = ctx.saved_tensors  # once: a checkpoint lets each be read one time
        tensors, rest = saved[: ctx.counts[0]], saved[ctx.counts[0] :]
        given = dict(zip(ctx.names, tensors, strict=True))
        wanted = {n for n, need in zip(ctx.names, ctx.needs_input_grad[3:], strict=True) if need}
        present = [g for g in grads if g is not None]
        if not present:
            return (None,) * (3 + len(ctx.names))
        if torch.is_grad_enabled() or watched(present):
            found = plain_gradients(ctx.cell, given, ctx.every_cell, list(grads), wanted)
        else:
            found = _through(ctx, rest, given, grads, wanted)
        return (None, None, None, *(found.get(name) for name in ctx.names))


# Found from the sensitivities of all steps.
_BY_PRODUCT = ("weight_recurrent", "tap_recurrent")


def _through(ctx: Any, rest: Any, given: Any, grads: Any, wanted: set[str]) -> dict[str, torch.Tensor]:
    """Differentiate the pass that was run."""
    count, names = ctx.counts[1], ctx.leaves
    results, leaves, seen = rest[:count], rest[count : count + len(names)], rest[count + len(names) :]
    pairs = [(r, g) for r, g in zip(results, grads, strict=False) if g is not None and r.requires_grad]
    asked = seen if wanted & set(_BY_PRODUCT) else ()
    grad = torch.autograd.grad(
        [r for r, _ in pairs],
        [*leaves, *asked],
        [g for _, g in pairs],
        retain_graph=True,
        allow_unused=True,
    )
    found = {n: g for n, g in zip(names, grad, strict=False) if g is not None}
    if asked:
        sensitivities = [
            torch.zeros_like(s) if g is None else g for s, g in zip(asked, grad[len(names) :], strict=True)
        ]
        found |= _by_product(torch.stack(sensitivities), results[0], given)
    return {name: value for name, value in found.items() if name in wanted}


def _by_product(sensitivities: torch.Tensor, outputs: torch.Tensor, given: Any) -> dict[str, torch.Tensor]:
    """The recurrent weight's gradient, one product over all steps."""
    before = torch.cat([given["h"][None], outputs.detach()[:-1]]).flatten(0, 1)
    product = sensitivities.flatten(0, 1).t() @ before
    return {"weight_recurrent": product, "tap_recurrent": sensitivities}
