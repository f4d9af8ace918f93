"""Finite transforms of the parameters: what the outputs do when blocks are scaled or shifted."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import torch
from torch import Tensor

from normgeom.symmetry.draws import OTHER_MASKS
from normgeom.symmetry.partitions import Move, Partition
from normgeom.symmetry.probe import Probe, deviation
from normgeom.symmetry.rescaling import rounding_tolerance

Transform = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
FACTOR = 2.5
_ONE_BY_ONE, _HALF = 3, 0.5
_DOUBLE = 1e-10
_FAR = 2.0**6
_FITS = 1e-6
_NEAR_POWER = 0.1


@dataclass
class Trial:
    """The outputs at one point of the parameters, and the outputs after finite transforms there.

    Attributes:
        masked: the outputs with other masks of dropout, if the model draws any.
        tolerance: up to which a deviation is rounding.
    """

    probe: Probe
    wanted: list[Tensor] = field(init=False)
    masked: list[list[Tensor]] = field(init=False)
    tolerance: float = field(init=False)

    def __post_init__(self) -> None:
        """Call the model at the point, and once more at rounded parameters."""
        self.wanted = self.probe.plain()
        self.tolerance = rounding_tolerance(self.probe, self.wanted)
        masks = range(1, OTHER_MASKS + 1) if self.probe.is_random else ()
        self.masked = [self.probe.plain(mask=mask) for mask in masks]

    def outputs(self, values: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the outputs with some parameters replaced."""
        return self.probe.plain(values)

    def deviation(self, values: Mapping[str, Tensor]) -> float:
        """Return by how much the outputs change, relative to the largest, at the first mask that does it.

        A shift of what one mask leaves whole is no symmetry of the next.
        """
        found = deviation(self.outputs(values), self.wanted)
        for k, wanted in enumerate(self.masked):
            if found > self.tolerance:
                break
            found = max(found, deviation(self.probe.plain(values, mask=k + 1), wanted))
        return found

    def settle(self, transforms: Sequence[Transform], wanted: list[Tensor] | None = None) -> list[float]:
        """Return the deviation of every transform; those that leave the outputs together share theirs.

        One after the other are composed, all at first, and halved while they change the outputs.

        Args:
            transforms: from some parameters to those and others, with random numbers of their own, so that no
                two undo each other.
            wanted: the outputs to compare with, those of the trial if not given.
        """
        found, groups = [0.0] * len(transforms), [range(len(transforms))] if transforms else []
        while groups:
            group = groups.pop()
            values: dict[str, Tensor] = {}
            for k in group:
                values |= transforms[k](values)
            together = deviation(self.outputs(values), wanted) if wanted else self.deviation(values)
            if together <= self.tolerance or len(group) == 1:
                for k in group:
                    found[k] = together
            else:
                size = len(group) // 2 if len(group) > _ONE_BY_ONE else 1
                groups += [group[k : k + size] for k in range(0, len(group), size)]
        return found

    def moved(
        self,
        part: Partition,
        move: Move,
        free: Tensor | None = None,
        *,
        start: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return a parameter with its free parts moved by random numbers, each part by its own."""
        name = part.view.parameter
        value = (start or {}).get(name, self.probe.parameters[name])
        free = torch.ones(part.view.parts, dtype=torch.bool) if free is None else free
        shape = part.shape(move)
        if move is Move.SCALE:
            draw = self.probe.random(shape)
        else:
            size = float(part.cut(value).square().mean().sqrt()) or 1.0
            draw = size * torch.randn(shape, generator=self.probe.generator, dtype=torch.float64)
        return {name: part.moved(value, move, free, draw)}

    def scaled(
        self, exponents: Mapping[Partition, int], factor: float, start: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return parameters with every block p multiplied by `factor ** k_p`; of `start` if it is given."""
        values = dict(start or {})
        for block, power in exponents.items():
            name = block.view.parameter
            value = values.get(name, self.probe.parameters[name])
            values[name] = block.put(value, block.fold(value) * factor**power)
        return values

    def far(self) -> float:
        """Return a power of two so large that a clamp which the outputs stay clear of would be met."""
        return 2.0**8 if self.probe.unit < _DOUBLE else 2.0**3

    def factor(self) -> float:
        """Return a random factor that is not near 1: between 1.6 and e, or one over that."""
        up, size = torch.rand(2, generator=self.probe.generator, dtype=torch.float64).tolist()
        return math.exp((1 + size) / 2 * (1 if up < _HALF else -1))

    def free_parts(self, part: Partition, move: Move, candidates: Tensor) -> tuple[Tensor, float]:
        """Return which candidates can be moved, each by its own numbers, and the deviation of those.

        All are moved together; if that changes the outputs, they are halved until the free ones are left.
        """
        free, largest = torch.zeros_like(candidates), 0.0
        groups = [candidates.nonzero()[:, 0]]
        budget = 2 + 2 * math.ceil(math.log2(max(len(candidates), 2)))
        while groups and budget:
            group = groups.pop()
            if not len(group):
                continue
            chosen = torch.zeros_like(candidates)
            chosen[group] = True
            found = self.deviation(self.moved(part, move, chosen))
            budget -= 1
            if found <= self.tolerance:
                free[group], largest = True, max(largest, found)
            elif len(group) > 1:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
        return free, largest

    def degree(self, moved: Sequence[Tensor], factor: float) -> float | None:
        """Return k if the outputs were multiplied by `factor ** k`, a small fraction other than 0."""
        ratios = [
            float((one * other).sum() / other.square().sum())
            for one, other in zip(moved, self.wanted, strict=True)
            if other.numel() and bool(other.any()) and bool(other.isfinite().all())
        ]
        if not ratios or min(ratios) <= 0:
            return None
        power = math.log(ratios[0]) / math.log(factor)
        near = Fraction(power).limit_denominator(12)
        predicted = [out * factor ** float(near) for out in self.wanted]
        if not near or abs(near - power) > _FITS or deviation(list(moved), predicted) > 100 * self.tolerance:
            return None
        return float(near)

    def fading(self, exponents: Mapping[Partition, int], near: float) -> float | None:
        """Return 2 if the deviation falls as `scale ** -2`, as that of an eps under a root does; else None.

        `near` is the deviation at `FACTOR`. The first power is no sign of an eps: a bias beside a growing
        weight fades so too.
        """
        base = self.outputs(self.scaled(exponents, _FAR))
        # The outputs stay near: an eps that is small here and nothing far out moves them no further.
        if deviation(base, self.wanted) > 2 * near:
            return None
        after = deviation(self.outputs(self.scaled(exponents, _FAR * FACTOR)), base)
        if after <= 0:
            return None
        power = math.log(near / after) / math.log(_FAR)
        return 2.0 if abs(power - 2) < _NEAR_POWER else None
