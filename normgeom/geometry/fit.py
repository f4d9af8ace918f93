"""Bringing a normalized GLM to a minimum of its negative log-likelihood, with scipy's optimizers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from torch import Tensor

from normgeom.geometry.arguments import check_params_dict, check_values
from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.families import Gaussian
from normgeom.geometry.glm import NormalizedGLM, Params, check_params
from normgeom.geometry.jacobian import check_outputs, has_closed_form

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]

_ROUND = 100
_MOST_TO_WHITEN = 3000
_DAMPING = 1e-4


@dataclass(frozen=True)
class FitResult:
    """Where a fit ended.

    Attributes:
        params: the parameters, of the type and on the device of those it started from.
        loss: the mean negative log-likelihood in nats, plus the output penalty.
        gradient_norm: the Euclidean norm of the gradient of `loss` at `params`, in float64.
        converged: whether every entry of the gradient is at most the tolerance.
        steps: iterations made.
        message: what the optimizer said.
    """

    params: Params = field(repr=False)
    loss: float
    gradient_norm: float
    converged: bool
    steps: int
    message: str


def fit(
    model: NormalizedGLM,
    params: Params,
    data: Tensor,
    targets: Tensor,
    *,
    output_penalty: float = 0.0,
    tolerance: float = 1e-6,
    max_steps: int = 2000,
) -> FitResult:
    """Minimize the mean negative log-likelihood from `params`, in float64.

    L-BFGS, in rounds. For a model of moderate size whose Fisher matrix has a closed form each round whitens
    the parameters with it, so that inputs of very different sizes do not slow the fit.

    The minimized function is `mean_n(-log p(y_n | eta_n)) + output_penalty/2 * mean_n ||eta_n||^2`. On data
    that the model can separate there is no minimum without a penalty. It acts on the outputs and not on
    the weights, since a penalty on scale-invariant weights only shrinks them and has no minimum either.

    Args:
        model: the GLM.
        params: where to start, for instance `model.init(...)`; left as it is.
        data: shape (cases, inputs).
        targets: what the family can produce, one for each case.
        output_penalty: see above, at least 0.
        tolerance: the largest entry of the gradient at which the fit has converged.
        max_steps: the most iterations.

    Returns:
        A `FitResult`. One that did not converge says so in `converged` and `message`; it does not raise.

    Raises:
        ValueError: if data, targets or the outputs at the start are not finite, do not fit together, or lie
            outside what the family allows.

    >>> from normgeom.geometry.families import Poisson
    >>> from normgeom.norms import NoNorm
    >>> glm = NormalizedGLM(NoNorm(), Poisson())
    >>> start = {"weight": torch.zeros(1, 1).double(), "bias": torch.zeros(1).double()}
    >>> result = fit(glm, start, torch.tensor([[0.0], [1.0]]).double(), torch.tensor([[1.0], [3.0]]))
    >>> result.converged, round(result.params["weight"].exp().item(), 4)
    (True, 3.0)
    """
    for name, given in {"data": data, "targets": targets}.items():
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(given).__name__}.")
    start, data = _checked_start(params, data), data.double()
    _check_problem(model, start, data, targets, output_penalty)

    def loss(point: Params) -> Tensor:
        eta = model(point, data)
        penalty = output_penalty / 2 * (eta**2).sum(-1).mean() if output_penalty else 0.0
        return penalty - model.family.log_prob(targets, eta).mean()

    objective, unflatten = _flat(loss, start)
    flat = torch.cat([tensor.reshape(-1) for tensor in start.values()]).cpu().numpy()
    whitens = has_closed_form(model) and len(flat) <= _MOST_TO_WHITEN

    def factor(flat: np.ndarray) -> np.ndarray | None:
        return _whitening(model, unflatten(flat), data, output_penalty) if whitens else None

    flat, steps, message = _rounds(objective, flat, factor, tolerance, max_steps)
    value, gradient = objective(flat)
    return FitResult(
        params={name: tensor.to(params[name]) for name, tensor in unflatten(flat).items()},
        loss=value,
        gradient_norm=float(np.linalg.norm(gradient)),
        converged=bool(np.abs(gradient).max() <= tolerance),
        steps=steps,
        message=message,
    )


def _rounds(
    objective: Objective,
    flat: np.ndarray,
    factor: Callable[[np.ndarray], np.ndarray | None],
    tolerance: float,
    max_steps: int,
) -> tuple[np.ndarray, int, str]:
    """Rounds of L-BFGS, each in new coordinates, until the gradient is small or nothing moves."""
    steps, message = 0, "no step was allowed"
    while steps < max_steps:
        most = min(_ROUND, max_steps - steps)
        flat, taken, message = _some_steps(objective, flat, factor(flat), tolerance, most)
        steps += taken
        if not taken or np.abs(objective(flat)[1]).max() <= tolerance:
            break
    return flat, steps, message


def _some_steps(
    objective: Objective, start: np.ndarray, factor: np.ndarray | None, tolerance: float, most: int
) -> tuple[np.ndarray, int, str]:
    """At most so many steps of L-BFGS in coordinates u, `vector = start + L^-T u` for a factor L."""
    largest = np.inf

    def vector(u: np.ndarray) -> np.ndarray:
        return start + (u if factor is None else solve_triangular(factor, u, trans=1, lower=True))

    def whitened(u: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal largest
        value, gradient = objective(vector(u))
        largest = float(np.abs(gradient).max())
        return value, gradient if factor is None else solve_triangular(factor, gradient, lower=True)

    def stop_if_converged(_: Any) -> None:
        if largest <= tolerance:
            raise StopIteration

    # The gradient in the model's own coordinates is the only test of convergence.
    options: Any = {"maxiter": most, "maxfun": 4 * most, "gtol": 0.0, "ftol": 0.0, "maxcor": 30}
    found = minimize(  # type: ignore[call-overload]
        whitened,
        np.zeros_like(start),
        jac=True,
        method="L-BFGS-B",
        options=options,
        callback=stop_if_converged,
    )
    message = "the gradient is within the tolerance" if largest <= tolerance else str(found.message)
    return vector(found.x), int(found.nit), message


def _whitening(model: NormalizedGLM, params: Params, data: Tensor, output_penalty: float) -> np.ndarray:
    """A factor of the exact Fisher matrix plus that of the penalty, damped, in the order of the vector."""
    total = closed_form_fisher(model, params, data, order="tensor").matrix
    if output_penalty:
        like_a_gaussian = replace(model, family=Gaussian(1 / output_penalty))
        total = total + closed_form_fisher(like_a_gaussian, params, data, order="tensor").matrix
    damping = max(_DAMPING * float(total.trace()) / len(total), torch.finfo(total.dtype).tiny)
    return torch.linalg.cholesky(total + damping * torch.eye(len(total)).to(total)).cpu().numpy()


def _checked_start(params: Params, data: Tensor) -> Params:
    """Return the parameters in float64; the data may be of another type."""
    check_params_dict(params)
    check_values(params)
    check_params(params, data.to(next(iter(params.values())).dtype))
    return {n: params[n].detach().double() for n in ("weight", "bias", "gain") if n in params}


def _check_problem(
    model: NormalizedGLM, params: Params, data: Tensor, targets: Tensor, output_penalty: float
) -> None:
    """Raise an error for data, targets, a start or a penalty that make no fit."""
    if not 0 <= output_penalty < float("inf"):
        raise ValueError(f"output_penalty must be a finite number >= 0; got {output_penalty}.")
    bad = int((~torch.isfinite(data)).any(1).sum())
    if bad or not len(data):
        raise ValueError(
            f"data must be finite numbers of at least one case; got {len(data)} cases, {bad} bad."
        )
    if len(targets) != len(data):
        raise ValueError(f"there must be one target for each case; got {len(targets)} for {len(data)} cases.")
    eta = model(params, data)
    check_outputs(model, eta)
    model.family.check_targets(targets, eta)


def _flat(loss: Callable[[Params], Tensor], like: Params) -> tuple[Objective, Callable[[np.ndarray], Params]]:
    """The loss and its gradient as functions of one flat numpy vector, and the way back to a dict."""

    def unflatten(vector: np.ndarray) -> Params:
        parts = torch.from_numpy(vector.copy()).split([tensor.numel() for tensor in like.values()])
        return {
            n: part.reshape(t.shape).to(t.device) for (n, t), part in zip(like.items(), parts, strict=True)
        }

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        gradient, value = torch.func.grad_and_value(loss)(unflatten(vector))
        flat = torch.cat([gradient[name].reshape(-1) for name in like]).cpu().numpy()
        # Outside the family's domain the line search must see a wall, not a NaN.
        return (float(value), flat) if np.isfinite(float(value)) else (float("inf"), np.zeros_like(flat))

    return objective, unflatten
