"""Sequences in one form, whatever form they came in: (steps, cases, ...) with the lengths of the cases.

Packed sequences are spread out by repeating each case's last step to the full length: what is computed there
is finite and never read.
"""

from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import PackedSequence

from normgeom.models.arguments import check_input, is_ids


@dataclass(frozen=True, eq=False)
class Packing:
    """Where each step of each case lies in a packed sequence.

    `at` (steps, cases) is the position in the packed data, a case's last one past its end; `step` and `case`
    are the inverse, for every position. `last` (cases,) is the last step of each case.
    """

    packed: PackedSequence
    at: torch.Tensor
    step: torch.Tensor
    case: torch.Tensor
    last: torch.Tensor

    @classmethod
    def of(cls, packed: PackedSequence) -> "Packing":
        """Find the positions."""
        device = packed.data.device
        sizes = packed.batch_sizes.to(device)
        steps, cases = torch.arange(len(sizes), device=device), torch.arange(int(sizes[0]), device=device)
        present = cases < sizes[:, None]
        last = present.sum(0) - 1
        starts = sizes.cumsum(0) - sizes
        at = starts[torch.minimum(steps[:, None], last)] + cases
        step, case = present.nonzero(as_tuple=True)
        return cls(packed, at, step, case, last)

    def reversed(self, sequence: torch.Tensor) -> torch.Tensor:
        """Reverse every case within its length."""
        steps = torch.arange(len(sequence), device=sequence.device)[:, None]
        return sequence[(self.last - steps).clamp_min(0), torch.arange(len(self.last), device=steps.device)]

    def final(self, states: torch.Tensor) -> torch.Tensor:
        """Return the state (cases, H) after the last step of each case."""
        return states[self.last, torch.arange(len(self.last), device=states.device)]


@dataclass(frozen=True, eq=False)
class Sequence:
    """A batch of sequences (steps, cases, ...), and what it takes to give outputs the form of the input."""

    values: torch.Tensor
    batched: bool
    batch_first: bool
    packing: Packing | None = None

    @classmethod
    def of(cls, x: torch.Tensor | PackedSequence, inputs: int, batch_first: bool) -> "Sequence":
        """Bring an input into the one form.

        Raises:
            TypeError: if it is neither a tensor nor a packed sequence.
            ValueError: if it has the wrong number of axes or features, or no step or case.
        """
        if isinstance(x, PackedSequence):
            check_input(x.data, inputs)
            packing = Packing.of(x)
            return cls(x.data[packing.at], True, batch_first, packing)
        check_input(x, inputs)
        axes = x.ndim if is_ids(x) else x.ndim - 1
        if axes not in (1, 2) or x.numel() == 0:
            order = "(cases, steps" if batch_first else "(steps, cases"
            raise ValueError(
                f"the input must be {order}, {inputs}) or (steps, {inputs}), or ids without the last axis, "
                f"with at least one step and case; got shape {tuple(x.shape)}."
            )
        if axes == 1:
            return cls(x.unsqueeze(1), False, batch_first)
        return cls(x.transpose(0, 1) if batch_first else x, True, batch_first)

    @property
    def cases(self) -> int:
        """The number of cases."""
        return self.values.shape[1]

    def reversed(self, sequence: torch.Tensor) -> torch.Tensor:
        """Reverse the steps of every case."""
        return sequence.flip(0) if self.packing is None else self.packing.reversed(sequence)

    def final(self, states: torch.Tensor) -> torch.Tensor:
        """Return the last state of every case, (cases, H)."""
        return states[-1] if self.packing is None else self.packing.final(states)

    def states_in(self, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Bring given states (layers, cases, H) into the order of the cases."""
        if not self.batched:
            return tuple(s.unsqueeze(1) for s in states)
        order = None if self.packing is None else self.packing.packed.sorted_indices
        return states if order is None else tuple(s.index_select(1, order) for s in states)

    def states_out(self, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Bring final states back into the order of the input."""
        if not self.batched:
            return tuple(s.squeeze(1) for s in states)
        order = None if self.packing is None else self.packing.packed.unsorted_indices
        return states if order is None else tuple(s.index_select(1, order) for s in states)

    def outputs_out(self, outputs: torch.Tensor) -> torch.Tensor | PackedSequence:
        """Give outputs (steps, cases, ...) the form of the input."""
        if self.packing is not None:
            data = outputs[self.packing.step, self.packing.case]
            return self.packing.packed._replace(data=data)
        if not self.batched:
            return outputs.squeeze(1)
        return outputs.transpose(0, 1) if self.batch_first else outputs
