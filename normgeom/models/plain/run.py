"""One run of a pass: what its parts share."""

from dataclasses import dataclass, field

import torch

from normgeom.models.buffers import Buffers
from normgeom.models.cell import Cell
from normgeom.models.given import Tensors
from normgeom.models.places import GainBiasNorm
from normgeom.models.plain.norms import StepNorm


@dataclass(eq=False)
class Run:
    """A cell, the tensors given to it by name, those that the gradient reads, and memory for more."""

    cell: Cell
    given: Tensors
    room: Buffers
    kept: Tensors = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.given["x"])

    @property
    def gates(self) -> tuple[int, int, int]:
        """The shape of all gates: steps, cases, units of all gates."""
        return self.steps, len(self.given["h"]), len(self.given["weight_recurrent"])

    @property
    def states(self) -> tuple[int, int, int]:
        """The shape of what there is one of for every hidden unit."""
        return self.steps, *self.given["h"].shape

    def norm(self, place: str, *shifts: str) -> StepNorm | None:
        """Return the norm of a place, the vectors added after it in its bias; None where there is none."""
        if f"{place}.gain" not in self.given:
            return None
        part, bias = self.cell.get_submodule(place), self.total(f"{place}.bias", *shifts)
        assert isinstance(part, GainBiasNorm)
        assert bias is not None
        return StepNorm(part.segments, part.eps, self.given[f"{place}.gain"], bias)

    def total(self, *names: str) -> torch.Tensor | None:
        """Return the sum of those vectors that there are."""
        found = [self.given[name] for name in names if name in self.given]
        return sum(found[1:], found[0]) if found else None
