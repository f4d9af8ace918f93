"""Whether the gradients of a model are those of its function, and slopes from differences if they are not.

A detached statistic, a straight-through estimator or a function with a hand-written backward pass has
gradients of another function. One difference along a random direction of all parameters tells.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.functionals import Sketch
from normgeom.symmetry.partitions import Partition
from normgeom.symmetry.probe import Probe

_STEPS = (10.0, 1.0, 0.1)


def are_right(error: float, unit: float) -> bool:
    """Return whether the `GradientCheck.error` is no more than rounding and a few kinks make."""
    return error <= (1e-5 if unit < 1e-10 else 1e-2)


class GradientCheck:
    """Gradients at a probe's point against a central difference along one random direction.

    The direction is drawn again whenever it is needed: kept, it would be as large as the model.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._seed = int(torch.randint(2**62, (), generator=probe.generator))
        self._lengths = {name: float(value.norm()) for name, value in probe.parameters.items()}
        self._slopes: list[float] = []
        self._sizes: list[float] = []

    def add(self, gradient: Mapping[str, Tensor | None]) -> None:
        """Take in the gradient of the next functional."""
        parts = []
        for name, direction in self._direction():
            own = gradient[name]
            if own is not None:
                parts.append(float((own * direction).sum()))
        self._slopes.append(sum(parts))
        self._sizes.append(float(np.linalg.norm(parts)))

    def error(self, sketch: Sketch) -> float:
        """Return by how much gradients and difference differ, relative to the slopes.

        Rounding over the step where the gradients are right. The step is shortened while they differ, since
        a long one may cross the kinks of rectifiers. The probe's parameters are moved, and moved back up to
        rounding.
        """
        smallest = float("inf")
        for factor in _STEPS:
            measured = self._difference(sketch, factor * self._probe.unit**0.5)[: len(self._slopes)]
            scale = max(np.max(self._sizes), np.max(np.abs(measured)))
            error = np.max(np.abs(measured - np.asarray(self._slopes))) / scale if scale else 0.0
            smallest = min(smallest, float(error))
            if are_right(smallest, self._probe.unit):
                break
        return smallest

    def _direction(self) -> Iterator[tuple[str, Tensor]]:
        generator = torch.Generator().manual_seed(self._seed)
        for name, value in self._probe.parameters.items():
            draw = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
            yield name, draw.mul_(self._lengths[name] / draw.norm().clamp_min(1e-300))

    def _difference(self, sketch: Sketch, step: float) -> np.ndarray:
        sides = []
        for t in (step, -2 * step):
            self._move(t)
            sides.append(sketch.apply(self._probe.plain()))
        self._move(step)
        return (sides[0] - sides[1]) / (2 * step)

    def _move(self, t: float) -> None:
        for name, direction in self._direction():
            self._probe.parameters[name].add_(direction, alpha=t)


def radial_differences(
    probe: Probe, blocks: Sequence[Partition], count: int, tick: Callable[[], None]
) -> np.ndarray:
    """Return (functionals, blocks), slopes under `θ_p -> (1 + t) θ_p` from differences."""
    sketch = Sketch(probe.plain(), count, probe.generator)
    columns = []
    for block in blocks:
        scaled = partial(_scaled, probe, block)
        columns.append(_difference(probe, sketch, scaled, probe.unit**0.5))
        tick()
    return np.stack(columns, axis=1)


def _scaled(probe: Probe, block: Partition, t: float) -> dict[str, Tensor]:
    value = probe.parameters[block.view.parameter]
    return {block.view.parameter: block.put(value, block.fold(value) * (1 + t))}


def _difference(
    probe: Probe, sketch: Sketch, at: Callable[[float], Mapping[str, Tensor]], step: float
) -> np.ndarray:
    """The slope of the functionals at 0 along a path, from both sides."""
    above, below = (sketch.apply(probe.plain(at(t))) for t in (step, -step))
    return (above - below) / (2 * step)
