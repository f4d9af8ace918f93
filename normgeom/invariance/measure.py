"""Measuring: a layer's outputs before and after one transform, and what rounding can explain of the change.

What rounding can explain is an amount for every output: roundoffs of the type times how far the outputs move
when weight and data are perturbed by a relative amount, measured in float64. For layer norm that grows with
offset/sigma, so the tolerance does, and a layer that loses more digits than its problem must is not excused.
"""

from dataclasses import dataclass
from typing import Any

import torch

from normgeom.invariance.calling import act, evaluate
from normgeom.invariance.verdict import Witness
from normgeom.layers import Layer, NormLayer
from normgeom.norms import summed_inputs

PROBES = 2
FINE = 2.0**-44  # a perturbation that float64 arithmetic still passes on
ELEMENTWISE = 6.0  # roundoffs of the type that a norm makes one after another
PER_ROOT_INPUT = 2.0  # roundoffs of the accumulator that a sum over the inputs makes


@dataclass(frozen=True)
class Measurement:
    """One transform at one point.

    Attributes:
        weight: the weight, shape (units, inputs).
        data: the data, shape (cases, inputs).
        element: the transform.
        before: the outputs.
        after: the outputs after the transform.
        allowed: for every output, the change that rounding can explain.
        law: the outputs that the layer's eps should give after the transform, None without statistics.
    """

    weight: torch.Tensor
    data: torch.Tensor
    element: Any
    before: torch.Tensor
    after: torch.Tensor
    allowed: torch.Tensor
    law: torch.Tensor | None = None

    def excess(self, expected: torch.Tensor) -> float:
        """Return the largest distance of an output from what is expected, over what rounding allows it."""
        off = (self.after.double() - expected.double()).abs() / self.allowed
        return float(off.max()) if off.isfinite().all() else float("inf")

    @property
    def size(self) -> float:
        """The largest output among those that move at all."""
        moves = (self.after != self.before) | (self.allowed > self.allowed.min())
        outputs = self.before.double().abs()
        return float(outputs[moves].max() if moves.any() else outputs.max()) or 1.0

    @property
    def error(self) -> float:
        """The largest change, relative to `size`."""
        return float((self.after.double() - self.before.double()).abs().max()) / self.size

    @property
    def tolerance(self) -> float:
        """The change that rounding can explain of a typical output, relative to `size`."""
        return float(self.allowed.median()) / self.size

    @property
    def predicted(self) -> float | None:
        """The change that the layer's eps should make, relative to `size`; None without statistics."""
        return None if self.law is None else float((self.law - self.before.double()).abs().max()) / self.size

    @property
    def within(self) -> bool:
        """Whether rounding can explain every change (one that is not a number is never explained)."""
        return self.excess(self.before) <= 1

    def witness(self) -> Witness:
        """Return the output that changed most against what rounding allows."""
        change = ((self.after - self.before).abs() / self.allowed).reshape(len(self.before), -1)
        case, unit = divmod(int(change.argmax()), change.shape[1])
        before, after = (t.reshape(len(t), -1)[case, unit].item() for t in (self.before, self.after))
        return Witness(self.weight, self.data, self.element, case, unit, before, after)


def measure(
    layer: Layer,
    element: Any,
    weight: torch.Tensor,
    data: torch.Tensor,
    *,
    generator: torch.Generator,
    wide: torch.dtype = torch.float64,
) -> Measurement:
    """Apply one element at one point and compare.

    Args:
        layer: any layer.
        element: a transform.
        weight: shape (units, inputs).
        data: shape (cases, inputs).
        generator: draws the probes of the tolerance.
        wide: the widest type in which the layer can be evaluated, where its condition is measured.

    Raises:
        ValueError: if the transform writes into its input, or changes the shape of the outputs.
    """
    moved = act(element, weight, data)
    before, after = evaluate(layer, weight, data), evaluate(layer, *moved)
    if before.shape != after.shape:
        raise ValueError(
            f"a transform must keep the outputs' shape; got {tuple(before.shape)}, then {tuple(after.shape)}."
        )
    dtype = max((before.dtype, weight.dtype), key=lambda t: torch.finfo(t).eps)
    exact = weight.to(wide), data.to(wide)
    points = [(weight, data), moved] if wide == dtype else [exact, act(element, *exact)]
    outputs = [before, after] if wide == dtype else [evaluate(layer, *at) for at in points]
    roundoff = torch.finfo(dtype).eps / 2
    moves, noise = 0.0, 0.0
    for at, out in zip(points, outputs, strict=True):
        moves = max(
            moves, *(sensitivity(layer, *at, out, step(wide, roundoff), generator) for _ in range(PROBES))
        )
        if wide == dtype == torch.float64:
            noise = max(noise, *(narrow_noise(layer, *at, out, moves, generator) for _ in range(PROBES)))
            # A step that saturates the layer hides its slope; a finer one does not, unless it sees noise.
            moves = max(moves, 0.0 if noise else sensitivity(layer, *at, out, FINE, generator))
    typical = torch.maximum(before.double().abs(), torch.full_like(before, moves, dtype=torch.float64))
    allowed = roundoffs(dtype, weight[0].numel()) * typical + 16 * noise
    law = _law_of_eps(layer, element, weight, data, before) if layer.eps else None
    return Measurement(weight, data, element, before, after, allowed.clamp_min(1e-300), law)


def relative_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the largest change over the largest output, `max |after - before| / max |before|`."""
    before, after = before.double(), after.double()
    size = before.abs().max()
    return float((after - before).abs().max() / size) if size > 0 else float((after - before).abs().max())


def size_of_summed_inputs(weight: torch.Tensor, data: torch.Tensor) -> float:
    """Return the largest summed input; for a convolution a bound, longest filter times largest datum."""
    if weight.ndim == data.ndim == 2 and weight.shape[1] == data.shape[1]:
        return float(summed_inputs(weight, data).abs().max())
    return float(weight.flatten(1).abs().sum(1).max() * data.abs().max())


def roundoffs(dtype: torch.dtype, inputs: int) -> float:
    """Return the relative error that a norm of summed inputs makes on a well-conditioned point.

    `6 u + 2 sqrt(inputs) u_sum`, u the unit roundoff of the type and u_sum that of the accumulator (float32
    for half types).
    """
    roundoff = torch.finfo(dtype).eps / 2
    summing = min(roundoff, torch.finfo(torch.float32).eps / 2)
    return ELEMENTWISE * roundoff + PER_ROOT_INPUT * inputs**0.5 * summing


def step(wide: torch.dtype, roundoff: float) -> float:
    """Return the perturbation that measures the condition: the roundoff under test, if `wide` can see it."""
    return max(roundoff, (torch.finfo(wide).eps / 2) ** 0.5)


def sensitivity(
    layer: Layer,
    weight: torch.Tensor,
    data: torch.Tensor,
    outputs: torch.Tensor,
    relative: float,
    generator: torch.Generator,
) -> float:
    """Return how far an output moves when every entry of weight and data moves by a relative +-`relative`.

    It is divided by `relative`; an output that becomes infinite counts as its own size.
    """
    signs = _signs(weight, generator), _signs(data, generator)
    moved = evaluate(layer, weight * (1 + relative * signs[0]), data * (1 + relative * signs[1]))
    change = (moved.double() - outputs.double()).abs()
    change = change.where(change.isfinite(), outputs.double().abs())
    return float(change.nan_to_num(posinf=1e300).max()) / relative


def narrow_noise(
    layer: Layer,
    weight: torch.Tensor,
    data: torch.Tensor,
    outputs: torch.Tensor,
    moves: float,
    generator: torch.Generator,
) -> float:
    """Return the rounding of a layer that computes in less than float64 whatever comes, 0 if it does not.

    Three equally spaced points on a short line are bent by the layer's curvature, which is small, and by the
    rounding of its arithmetic, which is not if that is narrow.
    """
    size = float(outputs.abs().nan_to_num(posinf=0.0).median()) or 1.0
    h = 2.0**-20 * size / max(moves, size)
    signs = _signs(weight, generator), _signs(data, generator)
    bend = float(bend_of(layer, weight, data, outputs, signs, h).nan_to_num(posinf=0.0).max())
    return bend if bend > 8 * (2.0**-40 * size + 2.0**-49 * max(moves, float(outputs.abs().max()))) else 0.0


def bend_of(
    layer: Layer,
    weight: torch.Tensor,
    data: torch.Tensor,
    outputs: torch.Tensor,
    along: tuple[torch.Tensor, torch.Tensor],
    h: float,
) -> torch.Tensor:
    """Return how far three points of a line lie from one for every output, `|f(2h) - 2 f(h) + f(0)|`.

    Args:
        layer: any layer.
        weight: where the line starts, shape (units, inputs).
        data: likewise, shape (cases, inputs).
        outputs: the outputs there.
        along: the directions, relative to the entries of weight and data.
        h: the step, relative to the entries.
    """
    one, two = (
        evaluate(layer, weight * (1 + k * h * along[0]), data * (1 + k * h * along[1])).double()
        for k in (1, 2)
    )
    return (two - 2 * one + outputs.double()).abs()


def _signs(array: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random signs of an array's shape, in its type and on its device."""
    return (torch.randint(0, 2, array.shape, generator=generator) * 2 - 1).to(array)


def eps_law(variance: Any, variance_after: Any, eps: float) -> Any:
    """Return `z'/z` under an action that leaves `z` unchanged at eps = 0 and takes v to v'.

    `z'/z = sqrt(v'/v) sqrt(v + eps) / sqrt(v' + eps)`; for a scale by delta this is
    `delta sqrt(v + eps) / sqrt(delta^2 v + eps)`.

    >>> round(float(eps_law(torch.tensor(1e-4), torch.tensor(4e-4), 1e-3)), 4)
    1.7728
    """
    return ((variance_after / variance) * (variance + eps) / (variance_after + eps)) ** 0.5


def _law_of_eps(
    layer: Layer, element: Any, weight: torch.Tensor, data: torch.Tensor, outputs: torch.Tensor
) -> torch.Tensor | None:
    """Return the outputs that the layer's eps should give after the action, None without statistics."""
    if not isinstance(layer, NormLayer):
        return None
    weight, data, outputs = weight.double(), data.double(), outputs.double()
    extra = (torch.as_tensor(layer.bias_before).to(weight),) if layer.has_bias_before else ()
    norm: Any = layer.norm
    before, after = (norm.statistics(*at, *extra)[1] for at in ((weight, data), element(weight, data)))
    if isinstance(before, int | float):
        return None
    ratio = torch.where((before == 0) & (after == 0), 1.0, eps_law(before, after, layer.eps))
    bias = torch.as_tensor(layer.bias).to(weight)
    return ratio * (outputs - bias) + bias
