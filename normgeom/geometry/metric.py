"""What the Fisher metric says about a step: its curvature, its length, how far it moves the predictions.

`ds^2 = d^T F d` is twice the KL divergence to second order,
`KL(p_theta || p_(theta+d)) = d^T F d / 2 + O(d^3)` (Ba et al. 2016, section 5.2.1).
Nothing here forms F: the change of the outputs, J d, is enough. A direction is a dict of tensors like the
parameters; names it lacks do not move.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normgeom.geometry.arguments import check_direction, check_inputs
from normgeom.geometry.batches import batches
from normgeom.geometry.evaluator import Evaluator, check_call, evaluator
from normgeom.geometry.kernels import PlainKernels
from normgeom.geometry.products import choose_mode
from normgeom.geometry.routes import refuse_random

Direction = Mapping[str, Tensor]

_SIZES = tuple(2.0**-k for k in range(1, 11))


def curvature(
    model: Any, params: Mapping[str, Tensor], data: Any, direction: Direction, *, family: Any = None
) -> Tensor:
    """Return the curvature along a direction, `d^T F d` with F the mean over cases, without forming F.

    Args:
        model: a NormalizedGLM, an `nn.Module`, or a function (params, data) -> natural parameters.
        params: the tensors by name.
        data: a tensor, a tuple of tensors, or batches (a list, a DataLoader), cases first.
        direction: a tensor for every name that moves, of the parameter's shape.
        family: the distribution of y; a NormalizedGLM has its own.

    Returns:
        A number in nats; negative or NaN never comes out of finite outputs.

    Raises:
        ValueError: if the direction has other names or shapes than the parameters.

    >>> from normgeom.geometry.families import Gaussian
    >>> model = lambda params, x: x @ params["weight"].T
    >>> weight, x = torch.ones(1, 2), torch.tensor([[3.0, 4.0]])
    >>> curvature(model, {"weight": weight}, x, {"weight": torch.tensor([[1.0, 0.0]])}, family=Gaussian())
    tensor(9.)
    """
    subject = evaluator(model, params, family=family)
    total, count = torch.zeros((), dtype=subject.dtype, device=subject.device), 0
    for inputs, _ in batches(data, subject.device):
        eta, change = change_of_outputs(subject, inputs, direction)
        total += (change * subject.family.fisher_product(eta, change)).sum()
        count += len(eta)
    return total / count


def length(
    model: Any, params: Mapping[str, Tensor], data: Any, direction: Direction, *, family: Any = None
) -> Tensor:
    """Return the length of a step in the Fisher metric, `ds = sqrt(d^T F d)`.

    When all of `||w_i||` doubles, ds along a fixed step in w_i halves (Ba et al. 2016, section 5.2.2).
    """
    return curvature(model, params, data, direction, family=family).sqrt()


def kl_divergence(
    model: Any, params: Mapping[str, Tensor], data: Any, other: Mapping[str, Tensor], *, family: Any = None
) -> Tensor:
    """Return the mean over cases of KL(p_params || p_other) in nats, positions summed.

    The families compute it without cancellation, so it is right for small differences of outputs too.
    """
    subject = evaluator(model, params, family=family)
    check_direction(other, params, what="other")
    moved = evaluator(model, {**params} | {k: v.to(params[k]) for k, v in other.items()}, family=family)
    total, count = torch.zeros((), dtype=subject.dtype, device=subject.device), 0
    for inputs, _ in batches(data, subject.device):
        check_call(subject, inputs)
        with torch.no_grad(), subject.untouched(), PlainKernels():
            before = subject(subject.params, inputs) if count else refuse_random(subject, inputs)
            after = moved(moved.params, inputs)
        subject.family.check(after)
        total += subject.family.kl(before, after).sum()
        count += len(before)
    return total / count


@dataclass(frozen=True)
class StepInNats:
    """How far an update moves the predictions, a mean over cases.

    Attributes:
        kl: KL(before || after), in nats.
        reverse_kl: KL(after || before), in nats.
        quadratic: half the curvature along the step at `before`; near `kl` for small steps.
        length: the square root of the curvature, the length of the step in the Fisher metric.
    """

    kl: float
    reverse_kl: float
    quadratic: float
    length: float


def step_in_nats(
    model: Any, params: Mapping[str, Tensor], data: Any, after: Mapping[str, Tensor], *, family: Any = None
) -> StepInNats:
    """Return how far the step from `params` to `after` moves the predictions on `data`.

    >>> from normgeom.geometry.families import Gaussian
    >>> model = lambda params, x: x @ params["weight"].T
    >>> before, after = {"weight": torch.zeros(1, 1)}, {"weight": torch.ones(1, 1)}
    >>> step_in_nats(model, before, torch.tensor([[2.0]]), after, family=Gaussian())
    StepInNats(kl=2.0, reverse_kl=2.0, quadratic=2.0, length=2.0)
    """
    _refuse_iterator(data)
    check_direction(after, params, what="after")
    free = evaluator(model, params, family=family).params
    direction = {name: after[name] - params[name] for name in after}
    direction = {name: part for name, part in direction.items() if name in free or part.any()}
    squared = float(curvature(model, params, data, direction, family=family))
    forward = kl_divergence(model, params, data, after, family=family)
    backward = kl_divergence(model, {**params, **after}, data, params, family=family)
    return StepInNats(float(forward), float(backward), squared / 2, squared**0.5)


@dataclass(frozen=True)
class KLComparison:
    """KL against its quadratic form along a direction.

    Attributes:
        sizes: the multiples of the direction.
        kl: the mean KL at each size, in nats.
        quadratic: `size^2 d^T F d / 2`.
        order: the error grows as `size^order`: 3 in general, 4 where the third-order term is zero; None if
            the error is rounding at every size (a linear model with Gaussian outputs).
    """

    sizes: tuple[float, ...]
    kl: tuple[float, ...]
    quadratic: tuple[float, ...]
    order: float | None

    @property
    def relative_errors(self) -> tuple[float, ...]:
        """|KL / quadratic - 1| at each size."""
        return tuple(
            abs(a - b) / b if b else abs(a - b) for a, b in zip(self.kl, self.quadratic, strict=True)
        )


def kl_against_quadratic(
    model: Any,
    params: Mapping[str, Tensor],
    data: Any,
    direction: Direction,
    *,
    sizes: tuple[float, ...] = _SIZES,
    family: Any = None,
) -> KLComparison:
    """Return KL(theta || theta + size * d) beside `size^2 d^T F d / 2`, and the order of their difference.

    The order is the slope of log error against log size over the sizes, largest first, whose error is well
    above rounding. Source: Ba et al. 2016, section 5.2.1.

    >>> from normgeom.geometry.families import Poisson
    >>> model = lambda params, x: x @ params["weight"].T
    >>> zero, one = {"weight": torch.zeros(1, 1).double()}, {"weight": torch.ones(1, 1).double()}
    >>> found = kl_against_quadratic(model, zero, torch.ones(1, 1).double(), one, family=Poisson())
    >>> round(found.order, 1)
    3.0
    """
    _refuse_iterator(data)
    if not sizes or not all(0 < size < math.inf for size in sizes):
        raise ValueError(f"sizes must be one or more finite numbers above 0; got {sizes}.")
    second = curvature(model, params, data, direction, family=family)
    kls = []
    for size in sizes:
        moved = {name: params[name] + size * part for name, part in direction.items()}
        kls.append(kl_divergence(model, params, data, moved, family=family))
    quadratic = [second * size**2 / 2 for size in sizes]
    order = _order(sizes, torch.stack(kls), torch.stack(quadratic), _smallest_kl(model, params, data, family))
    return KLComparison(sizes, tuple(map(float, kls)), tuple(map(float, quadratic)), order)


def change_of_outputs(subject: Evaluator, data: Any, direction: Direction) -> tuple[Tensor, Tensor]:
    """Return the outputs eta and their first-order change J d."""
    check_direction(direction, subject.params)
    check_inputs(data)
    check_call(subject, data)
    tangents = [direction.get(name, torch.zeros_like(v)).to(v) for name, v in subject.params.items()]
    with subject.untouched():
        product = choose_mode(subject, data)(subject, data)
        return product.eta, product.jvp(tangents)


def _refuse_iterator(data: Any) -> None:
    if isinstance(data, Iterator):
        raise TypeError("data is read several times, an iterator only once; give a list or a loader.")


def _smallest_kl(model: Any, params: Mapping[str, Tensor], data: Any, family: Any) -> float:
    """The KL divergence that rounding of the outputs to their type makes by itself, a mean over cases."""
    subject = evaluator(model, params, family=family)
    total, count = 0.0, 0
    for inputs, _ in batches(data, subject.device):
        with torch.no_grad(), subject.untouched(), PlainKernels():
            eta = subject(subject.params, inputs)
        rounding = torch.finfo(eta.dtype).eps * eta.abs().amax().expand_as(eta)
        total += float((rounding * subject.family.fisher_product(eta, rounding).abs()).sum()) / 2
        count += len(eta)
    return total / count


def _order(sizes: tuple[float, ...], kl: Tensor, quadratic: Tensor, smallest: float) -> float | None:
    """Slope of log |kl - quadratic| against log size where the difference is not rounding."""
    error = (kl - quadratic).abs()
    # The change of outputs carries a rounding of eps * eta, which is eps/size of itself and of KL.
    rounding = torch.finfo(kl.dtype).eps * quadratic / torch.tensor(sizes).to(kl)
    usable = error > 1e3 * (rounding + smallest)
    if int(usable.sum()) < 2:
        return None
    x, y = torch.tensor(sizes, dtype=torch.float64)[usable.cpu()].log(), error[usable].double().cpu().log()
    # The three smallest usable sizes are nearest to the limit.
    x, y = x[x.argsort()][:3], y[x.argsort()][:3]
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
