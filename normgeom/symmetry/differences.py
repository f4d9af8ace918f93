"""Whether the gradients of a model are those of its function, and slopes from differences if they are not.

A detached statistic, a straight-through estimator or a function with a hand-written backward pass has
gradients of another function. One difference along a random direction of all parameters tells.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.functionals import Sketch, gradients_at
from normgeom.symmetry.partitions import Partition
from normgeom.symmetry.probe import Probe

_FUNCTIONALS = 3


def step_size(probe: Probe) -> float:
    """Return the relative step of a difference: short enough to cross few kinks of rectifiers."""
    return float(10 * probe.unit**0.5)


def gradients_are_right(probe: Probe) -> bool:
    """Return whether the gradients are the slopes of the function, as far as a difference can tell."""
    return gradient_error(probe) <= (1e-5 if probe.unit < 1e-10 else 1e-2)


def gradient_error(probe: Probe) -> float:
    """Return by how much the gradients and a central difference differ, relative to the slopes.

    Rounding over the step where the gradients are right; infinite if there is no backward pass.
    """
    direction = {}
    for name, value in probe.parameters.items():
        draw = torch.randn(value.shape, generator=probe.generator, dtype=torch.float64).to(value)
        direction[name] = draw * value.norm() / draw.norm().clamp_min(1e-300)
    try:
        sketch, gradients = gradients_at(probe, _FUNCTIONALS)
        slopes, sizes = zip(*(_along(gradient, direction) for gradient in gradients), strict=True)
    except RuntimeError:
        return float("inf")
    measured = _difference(
        probe, sketch, lambda t: {n: v + t * direction[n] for n, v in probe.parameters.items()}
    )
    scale = max(np.max(sizes), np.max(np.abs(measured)))
    return float(np.max(np.abs(measured - np.asarray(slopes))) / scale) if scale else 0.0


def radial_differences(
    probe: Probe, blocks: Sequence[Partition], count: int, tick: Callable[[], None]
) -> np.ndarray:
    """Return (functionals, blocks), slopes under `θ_p -> (1 + t) θ_p` from differences."""
    sketch = Sketch(probe.plain(), count, probe.generator)
    columns = []
    for block in blocks:
        scaled = partial(_scaled, probe, block)
        columns.append(_difference(probe, sketch, scaled))
        tick()
    return np.stack(columns, axis=1)


def _scaled(probe: Probe, block: Partition, t: float) -> dict[str, Tensor]:
    value = probe.parameters[block.view.parameter]
    return {block.view.parameter: block.put(value, block.fold(value) * (1 + t))}


def _difference(probe: Probe, sketch: Sketch, at: Callable[[float], Mapping[str, Tensor]]) -> np.ndarray:
    step = step_size(probe)
    above, below = (sketch.apply(probe.plain(at(t))) for t in (step, -step))
    return (above - below) / (2 * step)


def _along(gradient: Mapping[str, Tensor | None], direction: Mapping[str, Tensor]) -> tuple[float, float]:
    """The slope along a direction, and the root of the squares of what each tensor adds."""
    parts = [float((g * direction[n]).sum()) for n, g in gradient.items() if g is not None]
    return sum(parts), float(np.sqrt(np.square(parts).sum()))
