"""The steps of each cell, and the gradient of them: `step` of `normgeom.models.cells`, written in place.

`*_forward(run, into)` fills the states and adds to `run.kept` what the gradient reads; `into` (steps, cases,
stack) are the products of the input. `*_backward(run, coming)` goes from the last step to the first; `d a`
stands for the gradient of a.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from normgeom.models.given import Tensors
from normgeom.models.plain.products import StateProducts, StateSensitivities
from normgeom.models.plain.run import Run

_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input


@dataclass
class OutputGradients:
    """The gradients of the hidden states of all steps, and of the cell states of all or of the last."""

    outputs: torch.Tensor | None
    cells: torch.Tensor | None

    def to_hidden(self, steps: int) -> list[torch.Tensor | None]:
        """Return the gradient of each step's hidden state."""
        return [None] * steps if self.outputs is None else [*self.outputs.unbind(0)]

    def to_cells(self, steps: int) -> list[torch.Tensor | None]:
        """Return the gradient of each step's cell state."""
        if self.cells is None:
            return [None] * steps
        return [*[None] * (steps - len(self.cells)), *self.cells.unbind(0)]


@dataclass
class StepGradients:
    """What going back through all steps gives.

    Attributes:
        into: the gradient of the products of the input, (steps, cases, stack).
        state: that of what the products of the state became, likewise.
        products: what makes of it the gradients of W_h and of its norm.
        others: the gradients of the initial state and of the cell's norm, by name.
    """

    into: torch.Tensor
    state: torch.Tensor
    products: StateSensitivities
    others: Tensors


def rnn_forward(run: Run, into: torch.Tensor) -> None:
    """`h = tanh(gates)`."""
    products, h = StateProducts(run), run.kept["hidden"].unbind(0)
    for t, more in enumerate(into.unbind(0)):
        products.gates(t, h[t], more, out=h[t + 1])
        h[t + 1].tanh_()
    run.kept |= products.kept()


def rnn_backward(run: Run, coming: OutputGradients) -> StepGradients:
    """`d gates = d h (1 - h^2)`."""
    h, products, grads = run.kept["hidden"].unbind(0), StateSensitivities(run), run.room.take(*run.gates)
    carried, outputs = torch.zeros_like(h[0]), coming.to_hidden(run.steps)
    for t, grad in _back(grads):
        _add(carried, outputs[t])
        _tanh_backward(carried, h[t + 1], grad_input=grad)
        products.backward(t, grad, carried)
    return StepGradients(grads, grads, products, {"h": carried})


def lstm_forward(run: Run, into: torch.Tensor) -> None:
    """`c' = s(f) c + s(i) tanh(g)`, `h' = s(o) tanh(LN(c'))`."""
    products, norm, units = StateProducts(run), run.norm("norm_cell"), run.states[-1]
    activated, squashed = run.room.take(*run.gates), run.room.take(*run.states)
    (f, i, o, g), gates = _gates_of(activated, 4), activated.unbind(0)
    three = activated[..., : 3 * units].unbind(0)
    h, c, y = (v.unbind(0) for v in (run.kept["hidden"], run.kept["cell"], squashed))
    statistics = []
    for t, more in enumerate(into.unbind(0)):
        products.gates(t, h[t], more, out=gates[t])
        three[t].sigmoid_()
        g[t].tanh_()
        shown = torch.mul(f[t], c[t], out=c[t + 1]).addcmul_(i[t], g[t])
        if norm is not None:
            shown, *pair = norm.forward(shown)
            statistics.append(pair)
        torch.tanh(shown, out=y[t])
        torch.mul(o[t], y[t], out=h[t + 1])
    run.kept |= products.kept() | {"activated": activated, "squashed": squashed}
    if norm is not None:
        both = (torch.stack(each) for each in zip(*statistics, strict=True))
        run.kept |= zip(("mean_cell", "scale_cell"), both, strict=True)


def lstm_backward(run: Run, coming: OutputGradients) -> StepGradients:
    """The gradient of `lstm_forward`, gate by gate.

    `d LN(c') = d h s(o) (1 - y^2)` with `y = tanh(LN(c'))`; `d c = d c' s(f)`; and, each times the slope of
    its nonlinearity, `d f = d c' c`, `d i = d c' tanh(g)`, `d g = d c' s(i)`, `d o = d h y`.
    """
    norm, products, activated = _CellNorm(run), StateSensitivities(run), run.kept["activated"]
    c, y, units = run.kept["cell"].unbind(0), run.kept["squashed"].unbind(0), run.states[-1]
    (f, i, o, g), grads = _gates_of(activated, 4), run.room.take(*run.gates)
    opened = torch.empty_like(grads[0])
    (df, di, do, dg), raw = opened.split(units, -1), opened[:, : 3 * units]
    three, grad_three = (v[..., : 3 * units].unbind(0) for v in (activated, grads))
    grad_g = grads[..., 3 * units :].unbind(0)
    carried, carried_cell, work = torch.zeros_like(c[0]), torch.zeros_like(c[0]), torch.empty_like(c[0])
    outputs, cells = coming.to_hidden(run.steps), coming.to_cells(run.steps)
    for t, grad in _back(grads):
        _add(carried, outputs[t])
        _add(carried_cell, cells[t])
        torch.mul(carried, y[t], out=do)
        torch.mul(carried, o[t], out=work)
        shown = _tanh_backward(work, y[t], grad_input=norm.place(t, work))
        carried_cell.add_(norm.backward(t, shown))
        torch.mul(carried_cell, c[t], out=df)
        torch.mul(carried_cell, g[t], out=di)
        torch.mul(carried_cell, i[t], out=dg)
        carried_cell.mul_(f[t])
        _sigmoid_backward(raw, three[t], grad_input=grad_three[t])
        _tanh_backward(dg, g[t], grad_input=grad_g[t])
        products.backward(t, grad, carried)
    return StepGradients(grads, grads, products, {"h": carried, "c": carried_cell} | norm.gradients())


class _CellNorm:
    """The gradient of the norm of the cell state, or nothing in its place."""

    def __init__(self, run: Run) -> None:
        self._norm, kept = run.norm("norm_cell"), run.kept
        if self._norm is not None:
            self._grads = run.room.take(*run.states)
            self._places = self._grads.unbind(0)
            self._where = kept["cell"][1:], kept["mean_cell"], kept["scale_cell"]
            self._read = [*zip(*(kind.unbind(0) for kind in self._where), strict=True)]

    def place(self, t: int, work: torch.Tensor) -> torch.Tensor:
        """Return where the gradient of the norm's output goes: memory that is free, if nobody reads it."""
        return work if self._norm is None else self._places[t]

    def backward(self, t: int, grad: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the cell state."""
        return grad if self._norm is None else self._norm.backward(grad, *self._read[t])

    def gradients(self) -> Tensors:
        """Return those of gain and bias."""
        if self._norm is None:
            return {}
        gain, bias = self._norm.gain_and_bias(self._grads, *self._where)
        return {"norm_cell.gain": gain, "norm_cell.bias": bias}


def gru_forward(run: Run, into: torch.Tensor) -> None:
    """`n = tanh(into_n + s(r) state_n)`, `h' = h + s(z) (n - h)`."""
    products, h, units = StateProducts(run), run.kept["hidden"].unbind(0), run.states[-1]
    activated, inner, sizes = run.room.take(*run.gates), run.room.take(*run.states), (2 * units, units)
    (z, r, n), two = _gates_of(activated, 3), activated[..., : 2 * units].unbind(0)
    into_two, into_n = (v.unbind(0) for v in into.split(sizes, -1))
    for t, state_n in enumerate(inner.unbind(0)):
        gates, candidate = products.forward(t, h[t]).split_with_sizes(sizes, -1)
        torch.add(gates, into_two[t], out=two[t]).sigmoid_()
        state_n.copy_(candidate)
        torch.addcmul(into_n[t], r[t], state_n, out=n[t]).tanh_()
        torch.lerp(h[t], n[t], z[t], out=h[t + 1])
    run.kept |= products.kept() | {"activated": activated, "inner": inner}


def gru_backward(run: Run, coming: OutputGradients) -> StepGradients:
    """The gradient of `gru_forward`.

    `d into_n = d h' s(z) (1 - n^2)`, `d state_n = d into_n s(r)`; and, each times the slope of the sigmoid,
    `d z = d h' (n - h)`, `d r = d into_n state_n`. Past the product, `d h = d h' (1 - s(z))`.
    """
    products, activated, inner = StateSensitivities(run), run.kept["activated"], run.kept["inner"].unbind(0)
    (z, r, n), h, units = _gates_of(activated, 3), run.kept["hidden"].unbind(0), run.states[-1]
    grads, of_state = run.room.take(*run.gates), run.room.take(*run.gates)
    two, into_two, state_two = (v[..., : 2 * units].unbind(0) for v in (activated, grads, of_state))
    into_n, state_n = (v[..., 2 * units :].unbind(0) for v in (grads, of_state))
    raw, work = h[0].new_empty(len(h[0]), 2 * units), torch.empty_like(h[0])
    dz, dr = raw.split(units, -1)
    carried, outputs = torch.zeros_like(h[0]), coming.to_hidden(run.steps)
    for t, grad in _back(of_state):
        _add(carried, outputs[t])
        torch.sub(n[t], h[t], out=dz).mul_(carried)
        torch.mul(carried, z[t], out=work)
        carried.sub_(work)
        _tanh_backward(work, n[t], grad_input=into_n[t])
        torch.mul(into_n[t], inner[t], out=dr)
        torch.mul(into_n[t], r[t], out=state_n[t])
        _sigmoid_backward(raw, two[t], grad_input=into_two[t])
        state_two[t].copy_(into_two[t])
        products.backward(t, grad, carried, beta=1)
    return StepGradients(grads, of_state, products, {"h": carried})


def _gates_of(stacked: torch.Tensor, gates: int) -> list[tuple[torch.Tensor, ...]]:
    """Return views of each gate at each step."""
    return [gate.unbind(0) for gate in stacked.chunk(gates, -1)]


def _back(grads: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Go through the steps from the last to the first."""
    return zip(range(len(grads) - 1, -1, -1), reversed(grads.unbind(0)), strict=True)


def _add(carried: torch.Tensor, coming: torch.Tensor | None) -> None:
    if coming is not None:
        carried.add_(coming)
