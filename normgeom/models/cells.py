"""The recurrent cells of the paper, each defined by the few lines of its `step`.

A cell is used on its own, one step a call, as `torch.nn.LSTMCell` is; `normgeom.models.recurrent` runs it
over sequences.
"""

from typing import Any

import torch
import torch.nn.functional as F

from normgeom.models.cell import Cell, Seen, State
from normgeom.models.placement import Placement
from normgeom.models.places import GainBiasNorm


class LNRNNCell(Cell):
    """The layer-normalized recurrent cell: `h = tanh(LN(W_h h + W_x x))`, statistics of the sum.

    Arguments: see `LNLSTMCell`. Un-normalized, `h = tanh(W_x x + b_x + W_h h + b_h)`, as `torch.nn.RNNCell`.

    Source: Ba et al. 2016, eq. 4.

    >>> cell = LNRNNCell(2, 2, eps=0.0)
    >>> cell(torch.tensor([[1.0, 2.0]])).abs().allclose(torch.tensor(1.0).tanh())  # two units: z is +1 and -1
    True
    """

    gates, stacked = 1, (1,)
    paper = Placement(cell=False, joint=True)

    def step(self, projected: torch.Tensor, state: State, seen: Seen | None = None) -> State:
        """Return the next hidden state."""
        return (self.gates_of(projected, state[0], seen).tanh(),)


class LNLSTMCell(Cell):
    """The layer-normalized LSTM cell; gates are stacked in the paper's order f, i, o, g.

    `(f, i, o, g) = LN(W_h h) + LN(W_x x) + b`, `c' = s(f) c + s(i) tanh(g)`, `h' = s(o) tanh(LN(c'))`.
    Statistics of the first two norms are over all 4H summed inputs; the carried c is not normalized.
    Un-normalized, it is `torch.nn.LSTMCell`, with a bias for each product.

    Args:
        input_size: inputs a case.
        hidden_size: units H.
        bias: whether b is there, and a bias where the placement has no norm. Norms have their own bias.
        placement: where norms are; None is the paper's.
        eps: added to every variance. At 0, a state h = 0 has no normalized value.
        initial_gain, initial_bias: of every norm.
        device, dtype: of the parameters.

    Raises:
        ValueError: for sizes below 1, a negative eps, an initial gain or bias that is not finite, or a norm
            where this cell has nothing to normalize.

    Source: Ba et al. 2016, eq. 20 to 22.

    >>> cell = LNLSTMCell(3, 4)
    >>> h, c = cell(torch.ones(5, 3))
    >>> h.shape, c.shape
    (torch.Size([5, 4]), torch.Size([5, 4]))
    >>> with torch.no_grad():
    ...     _ = cell.weight_input.mul_(2.0)
    >>> cell.eps, bool((cell(torch.ones(5, 3))[0] - h).abs().max() < 1e-3)  # invariant up to eps
    (1e-05, True)
    """

    gates, stacked = 4, (4,)
    paper = Placement()
    has_cell_state = True

    def step(self, projected: torch.Tensor, state: State, seen: Seen | None = None) -> State:
        """Return the next hidden state and cell state."""
        gates = self.gates_of(projected, state[0], seen)
        f, i, o, g = gates.chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * self.norm_cell(c).tanh(), c


class DRAWLSTMCell(LNLSTMCell):
    """The LSTM cell of the paper's DRAW experiment: plain gates, `h = s(o) tanh(LN(c))`.

    `LNLSTMCell` with the placement (cell alone); arguments and gate order are the same.

    Source: Ba et al. 2016, eq. 29 to 31.

    >>> DRAWLSTMCell(3, 4).placement
    Placement(input=False, recurrent=False, cell=True, joint=False, per_gate=False)
    """

    paper = Placement(input=False, recurrent=False)


class LNGRUCell(Cell):
    """The layer-normalized gated recurrent unit; gates are stacked in the paper's order z, r, candidate.

    `(z, r) = LN1(W_h h) + LN2(W_x x)`, `n = tanh(LN3(W x) + s(r) LN4(U h))`, `h' = (1 - s(z)) h + s(z) n`.
    Statistics are over 2H for z and r, over H for the candidate. `weight_recurrent` stacks W_h and U,
    `weight_input` stacks W_x and W. torch's update gate is 1 - s(z). With `joint`,
    `(z, r) = LN(W_h h + W_x x)` and `n = tanh(LN(W x + s(r) U h))`. Arguments: see `LNLSTMCell`.

    Source: Ba et al. 2016, eq. 26 to 28.

    >>> cell = LNGRUCell(3, 4)
    >>> cell.norm_recurrent
    GainBiasNorm(segments=(8, 4), eps=1e-05)
    >>> cell(torch.ones(5, 3)).shape
    torch.Size([5, 4])
    """

    gates, stacked = 3, (2, 1)
    paper = Placement(cell=False)

    def _add_norms(self, bias: bool, where: dict[str, Any]) -> None:
        super()._add_norms(bias, where)
        if self.placement.joint:
            gates, candidate = self.segments[:-1], self.segments[-1:]
            self.norm_joint = GainBiasNorm(gates, **self._norm_options)
            self.norm_candidate = GainBiasNorm(candidate, **self._norm_options)

    def step(self, projected: torch.Tensor, state: State, seen: Seen | None = None) -> State:
        """Return the next hidden state."""
        h, sizes = state[0], (2 * self.hidden_size, self.hidden_size)
        summed = F.linear(h, self.weight_recurrent)
        if seen is not None:
            summed = seen(summed)
        if not self.placement.joint:
            summed = self.norm_recurrent(summed)
        recurrent, into = summed.split(sizes, -1), projected.split(sizes, -1)
        gates = recurrent[0] + into[0]
        z, r = (self.norm_joint(gates) if self.placement.joint else gates).sigmoid().chunk(2, -1)
        n = into[1] + r * recurrent[1]
        n = (self.norm_candidate(n) if self.placement.joint else n).tanh()
        return (h + z * (n - h),)
