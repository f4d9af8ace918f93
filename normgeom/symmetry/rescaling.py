"""Rescales the parts of a block, and says of each what can be rescaled."""

import torch
from torch import Tensor

from normgeom.symmetry.arguments import check_finite
from normgeom.symmetry.blocks import BlockView
from normgeom.symmetry.probe import Probe, deviation
from normgeom.symmetry.result import ScaleInvariance, ScaleKind

_FACTORS = (2.5, 0.4)
_SAFETY = 100.0
_SUSPECT = 1e5
_GRADIENT_SAFETY = 1e4
_LARGEST_TOLERANCE = 0.05


def rounding_tolerance(probe: Probe, wanted: list[Tensor]) -> float:
    """Return what a deviation of the outputs is judged against: 100 times that of rounded parameters.

    Raises:
        ValueError: if the outputs are not finite, nothing but rounding, or differ from call to call.
    """
    check_finite(wanted)
    nearby = {}
    for name, value in probe.parameters.items():
        draw = torch.randn(value.shape, generator=probe.generator, dtype=torch.float64)
        nearby[name] = value * (1 + 4 * probe.unit * draw.to(value))
    noise = deviation(probe.plain(nearby), wanted)
    if noise > _SUSPECT * probe.unit and (again := deviation(probe.plain(), wanted)):
        raise ValueError(
            "the model must return the same outputs whenever it is called with the same parameters, buffers "
            f"and random state; they differ by {again:.1e} of their size. Does it count its calls, or keep a "
            "generator of its own?"
        )
    if _SAFETY * noise > _LARGEST_TOLERANCE:
        raise ValueError(
            "the outputs must be more than rounding; a rounding of the parameters changes the outputs "
            f"by {noise:.1e} of their size, in the type in which the model runs, which rounds at "
            f"{probe.unit:.0e}. Give another batch, `select` other outputs, or let it run in float64."
        )
    return _SAFETY * max(noise, 8 * probe.unit)


class Point:
    """The outputs and gradients at the model's point, and the rounding of the outputs there."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.wanted = probe.plain()
        self.tolerance = rounding_tolerance(probe, self.wanted)
        self.cosine_tolerance = min(_GRADIENT_SAFETY * self.tolerance, 1e-2)
        self.gradients = probe.gradients()

    def scaled(self, view: BlockView, factors: Tensor) -> float:
        """How much the outputs change if the parts (or rows) are multiplied by factors."""
        value = self.probe.parameters[view.parameter]
        moved = view.scaled(value, factors.to(value))
        return deviation(self.probe.plain({view.parameter: moved}), self.wanted)


class PartKinds:
    """The verdict on every part of one block."""

    def __init__(self, test: Point, view: BlockView) -> None:
        self.test, self.view = test, view
        value, grad = (view.split(t[view.parameter]) for t in (test.probe.parameters, test.gradients))
        self.cosines = _cosine(value.flatten(1), grad.flatten(1)).cpu()
        self.row_cosines = _cosine(value, grad).cpu()
        self.still = (self._slope(value, grad) < test.tolerance).cpu()
        self.cosines[self.still] = 0.0  # of a gradient that is rounding, a cosine says nothing
        self.deviations = torch.zeros(view.parts, dtype=torch.float64)
        small = self.cosines.abs() <= test.cosine_tolerance
        for group in (small, ~small):
            self._test_parts(group.nonzero()[:, 0].tolist())
        self.invariant = self.deviations <= test.tolerance
        self.unused = self._unused()
        self.by_row = self._by_row()

    @staticmethod
    def _slope(value: Tensor, grad: Tensor) -> Tensor:
        """The size of the change that a move as long as the block could make, to first order."""
        return value.flatten(1).norm(dim=1) * grad.flatten(1).norm(dim=1)

    def _factors(self, parts: list[int], factor: float | None) -> Tensor:
        """Ones, and for some parts a factor, or random ones if it is None."""
        factors = torch.ones(self.view.parts, dtype=torch.float64)
        drawn = self.test.probe.random((len(parts),)).cpu().double()
        factors[parts] = drawn if factor is None else factor
        return factors

    def _test_parts(self, parts: list[int]) -> None:
        """Rescale parts: one by its factors, several together by random ones, halved while they change it."""
        if not parts:
            return
        if len(parts) == 1:
            moved = [self.test.scaled(self.view, self._factors(parts, factor)) for factor in _FACTORS]
            self.deviations[parts] = max(moved)
            return
        together = self.test.scaled(self.view, self._factors(parts, None))
        self.deviations[parts] = together
        suspected = bool((self.cosines[parts].abs() <= self.test.cosine_tolerance).all())
        if together > self.test.tolerance and suspected:
            half = len(parts) // 2
            self._test_parts(parts[:half])
            self._test_parts(parts[half:])

    def _unused(self) -> Tensor:
        """Which parts the outputs do not depend on: those with no gradient, whatever their values."""
        unused = self.invariant & self.still
        if unused.any():
            value = self.test.probe.parameters[self.view.parameter]
            keep = self.view.scaled(torch.ones_like(value), (~unused).to(value))
            other = value.clone()
            self.test.probe.fill(other)
            moved = self.test.probe.plain({self.view.parameter: value * keep + other * (1 - keep)})
            if deviation(moved, self.test.wanted) > self.test.tolerance:
                return torch.zeros_like(unused)
        return unused

    def _by_row(self) -> Tensor:
        """Which invariant parts allow every row its own factor."""
        view, bound = self.view, self.test.cosine_tolerance
        candidates = self.invariant & ~self.unused & (self.row_cosines.abs() <= bound).all(1)
        if view.rows == 1 or len(view.shape) < 2 or not candidates.any():
            return torch.zeros_like(self.invariant)
        factors = self.test.probe.random((view.parts, view.rows)).cpu()
        factors[~candidates] = 1.0
        holds = self.test.scaled(view, factors) <= self.test.tolerance
        return candidates if holds else torch.zeros_like(candidates)

    def results(self, own: list[Tensor]) -> list[ScaleInvariance]:
        """Return the verdicts; `own` are the outputs with the model's own eps, which the probe has now."""
        breaking = self.deviations.clone()
        held = (self.invariant & ~self.unused).nonzero()[:, 0].tolist()
        if held and self.test.probe.has_eps:
            value = self.test.probe.parameters[self.view.parameter]
            moved = self.view.scaled(value, self._factors(held, _FACTORS[1]).to(value))
            breaking[held] = deviation(self.test.probe.plain({self.view.parameter: moved}), own)
        return [self._result(k, label, float(breaking[k])) for k, label in enumerate(self.view.labels)]

    def _result(self, k: int, label: str, breaking: float) -> ScaleInvariance:
        kind = ScaleKind.WHOLE if self.invariant[k] else ScaleKind.NONE
        if self.unused[k]:
            kind = ScaleKind.UNUSED
        elif self.by_row[k]:
            kind = ScaleKind.ROW
        cosine = float(self.cosines[k])
        flat = abs(cosine) <= self.test.cosine_tolerance
        return ScaleInvariance(
            label,
            kind,
            float(self.deviations[k]),
            self.test.tolerance,
            breaking,
            cosine,
            flat == (kind is not ScaleKind.NONE),
        )


def _cosine(value: Tensor, grad: Tensor) -> Tensor:
    """The cosine along the last axis, 0 where a vector is zero."""
    product = (value * grad).sum(-1)
    size = value.norm(dim=-1) * grad.norm(dim=-1)
    return torch.where(size > 0, product / size, 0.0)
