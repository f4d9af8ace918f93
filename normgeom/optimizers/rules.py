"""How optimizers move: what is left of a gradient's length, and what follows for rate and equilibrium.

The laws are those of a scale-invariant block whose gradient is a random direction of squared length
`L / ‖w‖²`: L is the mean squared gradient at unit norm, C the number of coordinates.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import optim


class Rule(Protocol):
    """What the dynamics ask of an optimizer's update rule."""

    @property
    def learning_rate(self) -> float:
        """η."""

    @property
    def weight_decay(self) -> float:
        """λ."""

    def effective_learning_rate(self, norm: Any) -> Any:
        """Return the rate at which the direction of a block of this norm moves."""

    def norm_growth(self, norm: float, steps: Any, *, squared_gradient: float, coordinates: int) -> Any:
        """Return the norm after some steps without weight decay."""

    def equilibrium(self, *, squared_gradient: float, coordinates: int) -> tuple[float, float]:
        """Return the norm and the angle a step at which growth and weight decay balance."""


@dataclass(frozen=True)
class SGDRule:
    """`v = α v + (1 − τ)(∇ + λ w); w -= η v`, or the Nesterov form: steps as long as the gradient says.

    Attributes:
        learning_rate: η.
        momentum: α.
        dampening: τ, of no effect without momentum, as in torch.
        weight_decay: λ.
        nesterov: whether the step is `∇ + α v`.
    """

    learning_rate: float
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    @property
    def dampened_rate(self) -> float:
        """`η (1 − τ)`, and η without momentum, where torch does not dampen."""
        return self.learning_rate * (1 - self.dampening) if self.momentum else self.learning_rate

    def effective_learning_rate(self, norm: Any) -> Any:
        """`η (1 − τ) / ((1 − α) ‖w‖²)`."""
        return self.dampened_rate * _kept(self.momentum) / norm**2

    def norm_growth(self, norm: float, steps: Any, *, squared_gradient: float, coordinates: int) -> Any:
        """`(‖w₀‖⁴ + 2 (η/(1 − α))² L t)^¼`."""
        rate = self.dampened_rate / (1 - self.momentum)
        return (norm**4 + 2 * rate**2 * squared_gradient * steps) ** 0.25

    def equilibrium(self, *, squared_gradient: float, coordinates: int) -> tuple[float, float]:
        """`(ηL / (λ(1−α)(2 − ηλ/(1+α))))^¼` and `√(2ηλ/(1+α))`."""
        rate, decay, momentum = self.dampened_rate, self.weight_decay, self.momentum
        norm = (
            rate * squared_gradient / (decay * (1 - momentum) * (2 - rate * decay / (1 + momentum)))
        ) ** 0.25
        spread = 1 / (1 + momentum)
        if self.nesterov:
            spread = (1 - momentum) * ((1 + momentum) ** 2 + momentum**4 / (1 - momentum**2))
        return norm, math.sqrt(2 * rate * decay * spread)


@dataclass(frozen=True)
class AdamRule:
    """A step whose length does not depend on the gradient's: a moving mean over a moving root mean square.

    Attributes:
        learning_rate: η.
        beta1: of the moving mean.
        weight_decay: λ.
        decoupled: whether λ w is subtracted beside the step (AdamW) or added to the gradient (Adam with L2).
    """

    learning_rate: float
    beta1: float = 0.9
    weight_decay: float = 0.0
    decoupled: bool = True

    def effective_learning_rate(self, norm: Any) -> Any:
        """`η / ‖w‖`."""
        return self.learning_rate / norm

    def norm_growth(self, norm: float, steps: Any, *, squared_gradient: float, coordinates: int) -> Any:
        """`√(‖w₀‖² + η² C t)`."""
        return (norm**2 + self.learning_rate**2 * coordinates * steps) ** 0.5

    def equilibrium(self, *, squared_gradient: float, coordinates: int) -> tuple[float, float]:
        """AdamW `√(ηC/2λ)`, Adam with L2 `(η √(CL) / 2λ)^⅓`; the angle is `η√C/‖w‖ · √((1−β₁)/(1+β₁))`."""
        rate, decay = self.learning_rate, self.weight_decay
        norm = math.sqrt(rate * coordinates / (2 * decay))
        if not self.decoupled:
            norm = (rate * math.sqrt(coordinates * squared_gradient) / (2 * decay)) ** (1 / 3)
        spread = (1 - self.beta1) / (1 + self.beta1)
        return norm, rate * math.sqrt(coordinates * spread) / norm


@dataclass(frozen=True)
class LionRule:
    """`w -= η (sign(β₁ m + (1−β₁)∇) + λ w)`, `m = β₂ m + (1−β₂)∇`: every step has length η√C.

    Attributes:
        learning_rate: η.
        beta1: of the mean whose sign is taken.
        beta2: of the mean that is kept.
        weight_decay: λ, decoupled.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0

    @property
    def persistence(self) -> float:
        """How much further the signs go than independent ones: `Λ = Σ_k (1−ηλ)^|k| corr(sign_t, sign_(t+k))`.

        For Gaussian gradients the correlation of two signs is `2/π arcsin ρ_k`, with ρ_k that of the means
        whose signs are taken. The means remember 1/(1−β₂) steps, which the decay may not outlast.
        """
        first, kept = 1 - self.beta1, self.beta1 * (1 - self.beta2)
        tail = kept**2 / (1 - self.beta2**2)
        variance = first**2 + tail
        total, lag, left = 1.0, first * kept + tail * self.beta2, 1 - self.learning_rate * self.weight_decay
        share = left
        while lag > 1e-12 * variance:
            total += 4 / math.pi * share * math.asin(min(1.0, lag / variance))
            lag, share = lag * self.beta2, share * left
        return total

    def effective_learning_rate(self, norm: Any) -> Any:
        """`η / ‖w‖`."""
        return self.learning_rate / norm

    def norm_growth(self, norm: float, steps: Any, *, squared_gradient: float, coordinates: int) -> Any:
        """`√(‖w₀‖² + η² C Λ t)`."""
        return (norm**2 + self.learning_rate**2 * coordinates * self.persistence * steps) ** 0.5

    def equilibrium(self, *, squared_gradient: float, coordinates: int) -> tuple[float, float]:
        """`√(ηCΛ/(λ(2−ηλ)))`, and the angle of a step of length η√C that keeps this norm."""
        rate, decay = self.learning_rate, self.weight_decay
        norm = math.sqrt(rate * coordinates * self.persistence / (decay * (2 - rate * decay)))
        kept = 1 - rate * decay
        # The signs remember where w came from: their part along w balances growth and decay.
        along = (rate**2 * coordinates - (1 - kept**2) * norm**2) / (2 * kept * norm)
        across = math.sqrt(rate**2 * coordinates - along**2)
        return norm, math.atan2(across, kept * norm - along)


@dataclass(frozen=True)
class NormalizedRule:
    """Steps whose length does not depend on the gradient's, with momentum of the steps or none.

    Only the effective learning rate has a law here.

    Attributes:
        learning_rate: η.
        momentum: α.
        weight_decay: λ.
        decoupled: whether λ w is subtracted beside the step, or added to the gradient.
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    decoupled: bool = False

    def effective_learning_rate(self, norm: Any) -> Any:
        """`η / ((1 − α) ‖w‖)`."""
        return self.learning_rate * _kept(self.momentum) / norm

    def norm_growth(self, norm: float, steps: Any, *, squared_gradient: float, coordinates: int) -> Any:
        """Raise an error: no law."""
        raise ValueError("the growth of the norm has a law for SGD, Adam, AdamW and Lion alone.")

    def equilibrium(self, *, squared_gradient: float, coordinates: int) -> tuple[float, float]:
        """Raise an error: no law."""
        raise ValueError("an equilibrium has a law for SGD, Adam, AdamW and Lion alone.")


@dataclass(frozen=True)
class UndefinedRule:
    """No law; the effective learning rate is NaN.

    Attributes:
        reason: why.
    """

    reason: str
    learning_rate: float
    weight_decay: float = 0.0

    def effective_learning_rate(self, norm: Any) -> Any:
        """NaN."""
        return norm * math.nan

    def norm_growth(self, norm: float, steps: Any, *, squared_gradient: float, coordinates: int) -> Any:
        """Raise an error with the reason."""
        raise ValueError(f"no law for this optimizer: {self.reason}.")

    def equilibrium(self, *, squared_gradient: float, coordinates: int) -> tuple[float, float]:
        """Raise an error with the reason."""
        raise ValueError(f"no law for this optimizer: {self.reason}.")


def _kept(momentum: float) -> float:
    """How often a gradient is applied in all, `1/(1 − α)`; NaN where momentum never forgets it."""
    return 1 / (1 - momentum) if momentum < 1 else math.nan


_REASONS: dict[str, str] = {
    "Adadelta": "its step has the length of earlier steps, whatever the gradient and the rate",
    "Adafactor": "its step is relative to the weights, so the norm drops out",
    "Adagrad": "its steps shrink with the sum of all squared gradients so far",
    "ASGD": "its rate follows a schedule inside the optimizer",
    "LBFGS": "its step follows the curvature of the loss",
    "Rprop": "every coordinate has a step of its own that grows and shrinks",
}


def rule_of(optimizer: optim.Optimizer, group: dict[str, Any]) -> Rule:
    """Return the update rule of a parameter group, read from its settings as they are now.

    SGD, Adam, AdamW, SparseAdam, NAdam, RAdam, Adamax, RMSprop and Muon are known by class, and Lion (not in
    torch) by name. Centred or not, RMSprop divides by the gradient's size; amsgrad divides by the largest
    ever seen, and has no rule.
    """
    rate, decay = float(group.get("lr", math.nan)), float(group.get("weight_decay", 0.0))
    if isinstance(optimizer, optim.SGD):
        return SGDRule(rate, group["momentum"], group["dampening"], decay, group["nesterov"])
    name = type(optimizer).__name__
    if group.get("amsgrad"):
        return UndefinedRule("amsgrad divides by the largest squared gradient so far", rate, decay)
    adams = (optim.Adam, optim.NAdam, optim.RAdam, optim.Adamax, optim.SparseAdam)
    if isinstance(optimizer, adams):
        decoupled = bool(group.get("decoupled_weight_decay", isinstance(optimizer, optim.AdamW)))
        if isinstance(optimizer, optim.Adam):
            return AdamRule(rate, float(group["betas"][0]), decay, decoupled)
        return NormalizedRule(rate, 0.0, decay, decoupled)
    if isinstance(optimizer, optim.RMSprop):
        return NormalizedRule(rate, group["momentum"], decay)
    if name == "Lion" and len(group.get("betas", ())) == 2:
        first, second = map(float, group["betas"])
        return LionRule(rate, first, second, decay)
    if name == "Muon":
        return NormalizedRule(rate, 0.0, decay, decoupled=True)
    reason = _REASONS.get(name, f"{name} is not known; pass rule=")
    return UndefinedRule(reason, rate, decay)


def group_of(optimizer: optim.Optimizer, parameter: torch.Tensor) -> dict[str, Any]:
    """Return the group of the optimizer that a parameter is in.

    Raises:
        ValueError: if it is in none.
    """
    for group in optimizer.param_groups:
        if any(value is parameter for value in group["params"]):
            return group
    raise ValueError(
        f"the parameter of shape {tuple(parameter.shape)} must be one of the optimizer's; it is in no group."
    )
