"""What the recurrent cells share: weights, norms, and the forms of input and state.

What depends on the input alone (`project`) is computed for all steps at once; `step` does the rest.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from normgeom.models.arguments import as_sizes, check_norm_options, is_ids, step_arguments
from normgeom.models.placement import Placement
from normgeom.models.places import GainBiasNorm, Shift

State = tuple[torch.Tensor, ...]
Seen = Callable[[torch.Tensor], torch.Tensor]


class Cell(nn.Module):
    """What the four cells share: two weights, the norms at their products, and the bias of eq. 20.

    `weight_input` (gates * H, inputs) and `weight_recurrent` (gates * H, H) are stacked by gate.
    `norm_input` and `norm_recurrent` (or `norm_joint`) act on the products; where the placement has no norm
    they are a bias alone, and with `bias=False` nothing.
    """

    gates: ClassVar[int]
    stacked: ClassVar[tuple[int, ...]]
    """The gates that share statistics in the paper."""
    paper: ClassVar[Placement]
    has_cell_state: ClassVar[bool] = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        placement: Placement | None = None,
        eps: float = 1e-5,
        initial_gain: float = 1.0,
        initial_bias: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        input_size, hidden_size = as_sizes(input_size=input_size, hidden_size=hidden_size)
        check_norm_options(eps, dtype, initial_gain=initial_gain, initial_bias=initial_bias)
        self.input_size, self.hidden_size, self.eps = input_size, hidden_size, eps
        self.placement = self.paper if placement is None else placement
        self._check_placement()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self._norm_options = {"eps": eps, "gain": initial_gain, "bias": initial_bias} | where
        stack = self.gates * hidden_size
        self.weight_input = nn.Parameter(torch.empty(stack, input_size, **where))
        self.weight_recurrent = nn.Parameter(torch.empty(stack, hidden_size, **where))
        self._add_norms(bias, where)
        self.reset_parameters()

    def _check_placement(self) -> None:
        """Raise an error for a norm where this cell has nothing to normalize."""
        if not isinstance(self.placement, Placement):
            raise TypeError(f"placement must be a Placement; got {self.placement!r}.")
        if self.placement.cell and not self.has_cell_state:
            raise ValueError(
                f"{type(self).__name__} has no cell state to normalize: placement.cell must be False; "
                f"got {self.placement}."
            )

    @property
    def segments(self) -> tuple[int, ...]:
        """How many units share their statistics at the gates, part by part of the stack."""
        shared = (1,) * self.gates if self.placement.per_gate else self.stacked
        return tuple(k * self.hidden_size for k in shared)

    def _add_norms(self, bias: bool, where: dict[str, Any]) -> None:
        """Add the norms, or what stands in their place."""
        place = self.placement
        if place.joint:
            self.norm_joint: nn.Module = GainBiasNorm(self.segments, **self._norm_options)
        else:
            self.norm_input = self._place(place.input, bias, where)
            self.norm_recurrent = self._place(place.recurrent, bias, where)
        if self.has_cell_state:
            segments = (self.hidden_size,)
            self.norm_cell: nn.Module = (
                GainBiasNorm(segments, **self._norm_options) if place.cell else nn.Identity()
            )
        with_bias = bias and self.has_cell_state and place.input and place.recurrent
        stack = self.gates * self.hidden_size
        self.bias = nn.Parameter(torch.empty(stack, **where)) if with_bias else None

    def _place(self, normalized: bool, bias: bool, where: dict[str, Any]) -> nn.Module:
        if normalized:
            return GainBiasNorm(self.segments, **self._norm_options)
        return Shift(self.gates * self.hidden_size, **where) if bias else nn.Identity()

    def reset_parameters(self, *, generator: torch.Generator | None = None) -> None:
        """Draw weights and biases from U(-1/sqrt(H), 1/sqrt(H)), as torch.nn.LSTM does.

        Gains and biases of norms are set to the values given at construction.
        """
        bound = 1 / math.sqrt(self.hidden_size)
        for part in self.modules():
            if isinstance(part, GainBiasNorm):
                part.reset_parameters()
                continue
            for value in part.parameters(recurse=False):
                nn.init.uniform_(value, -bound, bound, generator=generator)

    def products(self, x: torch.Tensor) -> torch.Tensor:
        """Return `W_x x` for features (..., inputs), or for ids (...) of one-hot inputs."""
        if is_ids(x):
            return F.embedding(x.long(), self.weight_input.T)
        return F.linear(x, self.weight_input)

    def project(self, x: torch.Tensor, tap: torch.Tensor | None = None) -> torch.Tensor:
        """Return what a step needs of its input, for any number of steps at once.

        With ids and a norm of the input's own, each column of W_x is normalized once and looked up: the
        product with a one-hot vector is that column. `tap` is added to the products.
        """
        if self.placement.joint:
            return self.products(x) if tap is None else self.products(x) + tap
        if is_ids(x) and tap is None:
            return F.embedding(x.long(), self._shifted(self.norm_input(self.weight_input.T)))
        products = self.products(x)
        return self._shifted(self.norm_input(products if tap is None else products + tap))

    def _shifted(self, summed: torch.Tensor) -> torch.Tensor:
        return summed if self.bias is None else summed + self.bias

    def gates_of(self, projected: torch.Tensor, h: torch.Tensor, seen: Seen | None = None) -> torch.Tensor:
        """Return `LN(W_h h) + LN(W_x x) + b`, or what the placement makes of it."""
        summed = F.linear(h, self.weight_recurrent)
        if seen is not None:
            summed = seen(summed)
        if self.placement.joint:
            return self._shifted(self.norm_joint(summed + projected))
        return self.norm_recurrent(summed) + projected

    def step(self, projected: torch.Tensor, state: State, seen: Seen | None = None) -> State:
        """Return the next state, the hidden state first; `seen` is shown `W_h h` and returns it."""
        raise NotImplementedError

    def run(self, projected: torch.Tensor, state: State, seen: Seen | None = None) -> list[State]:
        """Return the state after every step, from the projected inputs (steps, cases, gates * H)."""
        states = []
        for into in projected.unbind(0):
            state = self.step(into, state, seen)
            states.append(state)
        return states

    def forward(self, x: torch.Tensor, state: Any = None) -> Any:
        """Return the state after one step, in the form of torch's cells.

        Args:
            x: features (cases, inputs) or (inputs,), or ids of one-hot inputs (cases,) or ().
            state: hidden state (cases, H); a pair with the cell state for cells that have one. 0 if None.

        Raises:
            TypeError: if an argument is of the wrong type, or of another dtype than the weights outside of
                autocast.
            ValueError: if a shape does not fit.
        """
        given = step_arguments(self, x, state)
        state = self.step(self.project(x), given)
        return state if self.has_cell_state else state[0]

    def extra_repr(self) -> str:
        """Sizes and placement."""
        return f"{self.input_size}, {self.hidden_size}, {self.placement}"
