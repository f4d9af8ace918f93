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
_STEPS = (10.0, 1.0, 0.1)


def are_right(error: float, unit: float) -> bool:
    """Return whether a `gradient_error` is no more than rounding and a few kinks make."""
    return error <= (1e-5 if unit < 1e-10 else 1e-2)


def gradient_error(probe: Probe) -> float:
    """Return by how much the gradients and a central difference differ, relative to the slopes.

    Rounding over the step where the gradients are right; infinite if there is no backward pass. The step is
    shortened while they differ, since a long one may cross the kinks of rectifiers.
    """
    direction = {}
    for name, value in probe.parameters.items():
        draw = torch.randn(value.shape, generator=probe.generator, dtype=torch.float64).to(value)
        direction[name] = draw * value.norm() / draw.norm().clamp_min(1e-300)
    try:
        sketch, gradients = gradients_at(probe, _FUNCTIONALS)
        slopes, sizes = zip(*(_along(gradient, direction) for gradient in gradients), strict=True)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return float("inf")
    smallest = float("inf")
    for factor in _STEPS:
        step = factor * probe.unit**0.5
        measured = _difference(probe, sketch, partial(_along_line, probe, direction), step)
        scale = max(np.max(sizes), np.max(np.abs(measured)))
        error = np.max(np.abs(measured - np.asarray(slopes))) / scale if scale else 0.0
        smallest = min(smallest, float(error))
        if are_right(smallest, probe.unit):
            break
    return smallest


def _along_line(probe: Probe, direction: Mapping[str, Tensor], t: float) -> dict[str, Tensor]:
    return {name: value + t * direction[name] for name, value in probe.parameters.items()}


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


def _along(gradient: Mapping[str, Tensor | None], direction: Mapping[str, Tensor]) -> tuple[float, float]:
    """The slope along a direction, and the root of the squares of what each tensor adds."""
    parts = [float((g * direction[n]).sum()) for n, g in gradient.items() if g is not None]
    return sum(parts), float(np.sqrt(np.square(parts).sum()))
