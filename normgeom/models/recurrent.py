"""Recurrent layers with the calling convention of `torch.nn.LSTM`, made of the paper's cells.

The cell of layer k is the submodule `layer{k}`, that of the reverse direction `layer{k}_reverse`.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from normgeom.models.arguments import as_sizes, as_states, check_dropout, check_like, check_state
from normgeom.models.cell import Cell, State
from normgeom.models.cells import DRAWLSTMCell, LNGRUCell, LNLSTMCell, LNRNNCell
from normgeom.models.computed import as_computed
from normgeom.models.hooks import after_pass, before_pass
from normgeom.models.placement import Placement
from normgeom.models.scan import scan
from normgeom.models.sequences import Sequence


class Recurrent(nn.Module):
    """What the four recurrent layers share: layers, directions, and the forms of input and state."""

    cell_type: ClassVar[type[Cell]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        placement: Placement | None = None,
        eps: float = 1e-5,
        initial_gain: float = 1.0,
        initial_bias: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        input_size, hidden_size, num_layers = as_sizes(
            input_size=input_size, hidden_size=hidden_size, num_layers=num_layers
        )
        check_dropout(dropout)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, float(dropout), bidirectional
        self._names = [[f"layer{k}", *[f"layer{k}_reverse"] * bool(bidirectional)] for k in range(num_layers)]
        initial = {"initial_gain": initial_gain, "initial_bias": initial_bias}
        self._add_cells(bias=bias, placement=placement, eps=eps, **initial, device=device, dtype=dtype)
        self.placement = self.cells()["layer0"].placement

    def _add_cells(self, **options: Any) -> None:
        """Add the cell of each layer and direction."""
        outputs = self.hidden_size * (1 + self.bidirectional)
        for layer, names in enumerate(self._names):
            for name in names:
                inputs = outputs if layer else self.input_size
                self.add_module(name, self.cell_type(inputs, self.hidden_size, **options))

    def cells(self) -> dict[str, Cell]:
        """Return the cells by name, in the order of torch's states: by layer, then direction."""
        return {name: getattr(self, name) for names in self._names for name in names}

    def reset_parameters(self, *, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew, U(-1/sqrt(H), 1/sqrt(H)), and set gains and biases of norms as given."""
        for cell in self.cells().values():
            cell.reset_parameters(generator=generator)

    def forward(
        self, x: torch.Tensor | PackedSequence, state: Any = None, *, taps: Any = None
    ) -> tuple[Any, Any]:
        """Return the outputs of the last layer at every step, and the final state of every layer.

        Args:
            x: (steps, cases, inputs), with `batch_first` (cases, steps, inputs), unbatched (steps, inputs),
                or a packed sequence; integers without the last axis are ids of one-hot inputs.
            state: (layers * directions, cases, H); a pair (h, c) where the cell has a cell state; 0 if None.
            taps: for `per_example_gradients`: what is added to the products, by cell.

        Forward hooks of a cell are called once a pass and see the whole sequence, (steps, cases, ...) in the
        cell's direction, and its states: they may set weights, as pruning does, but must return None.

        Raises:
            TypeError: if the input or the state is of the wrong type, or of another dtype than the weights
                outside of autocast.
            ValueError: if a shape does not fit, an id is out of range, or a cell has a backward hook or one
                that returns something.
        """
        sequence = Sequence.of(x, self.input_size, self.batch_first)
        states = sequence.states_in(self._states(state, sequence))
        values = sequence.values
        finals: list[State] = []
        for layer, names in enumerate(self._names):
            if layer and self.dropout and self.training:
                values = F.dropout(values, self.dropout)
            outputs = []
            for name in names:
                start = tuple(s[len(finals)] for s in states)
                out, final = self._run(name, values, start, sequence, taps)
                outputs.append(out)
                finals.append(final)
            values = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        stacked = sequence.states_out(tuple(torch.stack(each) for each in zip(*finals, strict=True)))
        return sequence.outputs_out(values), stacked if len(stacked) > 1 else stacked[0]

    def _run(
        self, name: str, values: torch.Tensor, start: State, sequence: Sequence, taps: Any
    ) -> tuple[torch.Tensor, State]:
        """Run one cell in its direction."""
        cell, backward = getattr(self, name), name.endswith("_reverse")
        into = sequence.reversed(values) if backward else values
        before_pass(cell, into, start)
        runs, tap = as_computed(cell), None
        if taps is not None:
            runs, tap = taps.of(name, runs, into, start)
        out, final = scan(runs, into, start, sequence.packing, tap)
        after_pass(cell, into, start, (out, final))
        if taps is not None:
            taps.keep(name, out)
        return (sequence.reversed(out) if backward else out), final

    def _states(self, state: Any, sequence: Sequence) -> State:
        """Return the initial states, zeros if none are given, after checking them."""
        layers = self.num_layers * (1 + self.bidirectional)
        first = self.layer0
        assert isinstance(first, Cell)
        shape: tuple[int, ...] = (layers, sequence.cases, self.hidden_size)
        shape = shape if sequence.batched else (layers, self.hidden_size)
        weight = next(first.parameters())
        if state is None:
            check_like(weight, input=sequence.values)
            zero = torch.zeros(shape, device=weight.device, dtype=weight.dtype)
            return (zero,) * (2 if first.has_cell_state else 1)
        states = as_states(state, first.has_cell_state)
        for name, value in zip(("h", "c"), states, strict=False):
            check_state(name, value, shape)
        check_like(weight, input=sequence.values, **dict(zip(("h", "c"), states, strict=False)))
        return states

    def extra_repr(self) -> str:
        """Sizes and options."""
        options = f"batch_first={self.batch_first}, dropout={self.dropout:g}"
        options += ", bidirectional=True" * bool(self.bidirectional)
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, {options}"


class LNRNN(Recurrent):
    """Layer-normalized recurrent layers, `h = tanh(LN(W_h h + W_x x))`: arguments of `LNLSTM`.

    Source: Ba et al. 2016, eq. 4.

    >>> outputs, h = LNRNN(3, 4)(torch.ones(7, 5, 3))
    >>> outputs.shape, h.shape
    (torch.Size([7, 5, 4]), torch.Size([1, 5, 4]))
    """

    cell_type = LNRNNCell


class LNLSTM(Recurrent):
    """Layer-normalized LSTM layers, with the calling convention of `torch.nn.LSTM`.

    `(f, i, o, g) = LN(W_h h) + LN(W_x x) + b`, `c = s(f) c + s(i) tanh(g)`, `h = s(o) tanh(LN(c))`.

    Args:
        input_size: inputs a step.
        hidden_size: units H.
        num_layers: layers, each fed with the outputs of the one before.
        bias: whether b is there, and a bias where the placement has no norm. Norms have their own bias.
        batch_first: whether input and outputs are (cases, steps, ...); states never are.
        dropout: of the outputs between layers, in training; drawn from torch's own generator, as there.
        bidirectional: whether a second cell reads every sequence backwards.
        placement: where norms are; None is the paper's, `Placement.none()` is `torch.nn.LSTM` itself.
        eps: added to every variance. At 0, a state h = 0 has no normalized value.
        initial_gain, initial_bias: of every norm (the paper compares gains of 1.0 and 0.1).
        device, dtype: of the parameters.

    Raises:
        ValueError: for sizes below 1, a negative eps, a dropout that is no probability, an initial gain or
            bias that is not finite, or a norm where the cell has nothing to normalize.

    Source: Ba et al. 2016, eq. 20 to 22.

    >>> lstm = LNLSTM(3, 4, num_layers=2)
    >>> outputs, (h, c) = lstm(torch.ones(7, 5, 3))
    >>> outputs.shape, h.shape, torch.equal(outputs[-1], h[-1])
    (torch.Size([7, 5, 4]), torch.Size([2, 5, 4]), True)
    >>> ids = torch.tensor([[0, 1], [2, 0]])
    >>> torch.allclose(lstm(ids)[0], lstm(torch.eye(3)[ids])[0])
    True
    """

    cell_type = LNLSTMCell


class LNGRU(Recurrent):
    """Layer-normalized GRU layers: arguments of `LNLSTM`, formulas of `LNGRUCell`.

    Source: Ba et al. 2016, eq. 26 to 28.

    >>> outputs, h = LNGRU(3, 4, batch_first=True)(torch.ones(5, 7, 3))
    >>> outputs.shape, h.shape
    (torch.Size([5, 7, 4]), torch.Size([1, 5, 4]))
    """

    cell_type = LNGRUCell


class DRAWLSTM(Recurrent):
    """The LSTM of the paper's DRAW experiment, `h = s(o) tanh(LN(c))`: arguments of `LNLSTM`.

    Source: Ba et al. 2016, eq. 29 to 31.

    >>> outputs, (h, c) = DRAWLSTM(3, 4)(torch.ones(7, 3))
    >>> outputs.shape, h.shape
    (torch.Size([7, 4]), torch.Size([1, 4]))
    """

    cell_type = DRAWLSTMCell
