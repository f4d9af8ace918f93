"""Where weight decay and growth balance, and how the norm grows where there is no weight decay."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import optim

from normgeom.optimizers.rules import AdamRule, LionRule, Rule, SGDRule, rule_of


@dataclass(frozen=True)
class Equilibrium:
    """What a scale-invariant block tends to.

    Attributes:
        norm: `‖w‖`.
        angle: the angular update a step, in radians.
        steps: `1/(2ηλ)`-like time of the approach: `1/(4ηλ/(1−α))` for SGD, `1/(2ηλ)` for AdamW and Lion, in
            steps, to first order.
    """

    norm: float
    angle: float
    steps: float


def equilibrium(
    optimizer: optim.Optimizer | Rule,
    *,
    coordinates: int | None = None,
    squared_gradient: float | None = None,
    group: int = 0,
) -> Equilibrium:
    """Return the norm and the angular update at which weight decay balances the growth of a block.

    SGD `(ηL/(λ(2−ηλ)))^¼`, `√(2ηλ)`; with momentum `(ηL/(λ(1−α)(2−ηλ/(1+α))))^¼`, `√(2ηλ/(1+α))`; AdamW
    `√(ηC/2λ)`, `√(2ηλ(1−β₁)/(1+β₁))`; Adam with L2 `(η√(CL)/2λ)^⅓`, `η√C/‖w‖·√((1−β₁)/(1+β₁))`; Lion
    `√(ηCΛ/(λ(2−ηλ)))`, about `η√C/‖w‖` (Λ: `LionRule.persistence`). All for gradients that are
    independent of each other from step to step.

    Args:
        optimizer: SGD, Adam, AdamW or Lion, or one of `SGDRule`, `AdamRule`, `LionRule`.
        coordinates: C, the number of coordinates of the block (Adam, AdamW, Lion).
        squared_gradient: L, the mean of `‖∇‖²‖w‖²` (SGD, and Adam with L2).
        group: which parameter group of the optimizer.

    Raises:
        ValueError: if there is no weight decay, if C or L is needed and missing, if no law is known, or if
            η, λ and the momentum are so large that no norm is kept: ηλ(1−τ) < 2(1+α) for SGD, ηλ < 1 for
            Lion, ηλ < 2 for AdamW, and α, β₁ in [0, 1).

    Source: van Laarhoven 2017 (SGD); Wan et al. 2021 (momentum); Kosson et al. 2024 (Adam, AdamW, Lion). For
    Lion the signs' correlation is taken exactly (2/π arcsin ρ, over the life of w), not to first order.

    >>> found = equilibrium(SGDRule(0.1, weight_decay=0.01), squared_gradient=25.0)
    >>> round(found.norm**4, 1), round(found.angle, 4)
    (125.1, 0.0447)
    """
    rule = _rule(optimizer, group)
    if not rule.weight_decay > 0 or not rule.learning_rate > 0:
        raise ValueError(
            "an equilibrium needs a learning rate and a weight decay above 0; got "
            f"{rule.learning_rate:g} and {rule.weight_decay:g}. Without decay see norm_growth."
        )
    _check_momentum(rule)
    _check_decay(rule)
    needs = _numbers(rule, coordinates, squared_gradient)
    norm, angle = rule.equilibrium(**needs)
    return Equilibrium(norm, angle, _time(rule, needs))


def norm_growth(
    optimizer: optim.Optimizer | Rule,
    norm: float,
    steps: Any,
    *,
    coordinates: int | None = None,
    squared_gradient: float | None = None,
    group: int = 0,
) -> Any:
    """Return the norm of a block after some steps without weight decay.

    SGD `‖w‖⁴ = ‖w₀‖⁴ + 2(η/(1−α))²Lt`; Adam, AdamW `‖w‖² = ‖w₀‖² + η²Ct`; Lion `‖w‖² = ‖w₀‖² + η²CΛt`. So the
    effective learning rate falls as `t^(−½)`. Adam's law is for a norm that changes little within the
    1/(1 − β₂) steps that its divisor remembers; a faster growth is overestimated.

    Args:
        optimizer: as in `equilibrium`; its weight decay must be 0.
        norm: `‖w₀‖`, at least 0.
        steps: t, a number or an array, at least 0.
        coordinates: C (Adam, AdamW, Lion).
        squared_gradient: L, the mean of `‖∇‖²‖w‖²` (SGD).
        group: which parameter group of the optimizer.

    Returns:
        A number, or an array like `steps`.

    Raises:
        ValueError: if there is weight decay, if C or L is needed and missing, if no law is known, if the norm
            or a number of steps is negative, or if the momentum is not in [0, 1).

    >>> norm_growth(SGDRule(0.1), 1.0, 200, squared_gradient=3.75)
    2.0
    """
    rule = _rule(optimizer, group)
    if rule.weight_decay:
        raise ValueError(f"the growth is without weight decay; got {rule.weight_decay:g}. See equilibrium.")
    steps = steps if isinstance(steps, int | float) else np.asarray(steps, dtype=float)
    for name, value in (("norm", norm), ("steps", steps)):
        if not np.all(np.isfinite(value) & (np.asarray(value) >= 0)):
            raise ValueError(f"{name} must be finite and at least 0; got {value}.")
    _check_momentum(rule)
    return rule.norm_growth(norm, steps, **_numbers(rule, coordinates, squared_gradient))


def _rule(optimizer: optim.Optimizer | Rule, group: int) -> Rule:
    if not isinstance(optimizer, optim.Optimizer):
        if not hasattr(optimizer, "equilibrium"):
            raise TypeError(f"an optimizer, or a rule such as SGDRule(0.1), is needed; got {optimizer!r}.")
        return optimizer
    if not 0 <= group < len(optimizer.param_groups):
        raise ValueError(f"the optimizer has {len(optimizer.param_groups)} groups; got group={group}.")
    return rule_of(optimizer, optimizer.param_groups[group])


def _check_momentum(rule: Rule) -> None:
    """Raise an error for a momentum that never forgets."""
    name = "momentum" if isinstance(rule, SGDRule) else "beta1"
    value = getattr(rule, name, 0.0)
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1): steps must be forgotten; got {value:g}.")


def _check_decay(rule: Rule) -> None:
    """Raise an error where the decay of a step is too large for any norm to be kept."""
    pull, condition, limit = rule.learning_rate * rule.weight_decay, "ηλ", 1.0
    if isinstance(rule, SGDRule):
        pull, condition, limit = rule.dampened_rate * rule.weight_decay, "ηλ(1−τ)", 2 * (1 + rule.momentum)
    elif isinstance(rule, AdamRule):
        limit = 2.0 if rule.decoupled else math.inf
    elif not isinstance(rule, LionRule):
        return
    if not pull < limit:
        raise ValueError(f"an equilibrium needs {condition} < {limit:g}; got {pull:g}: lower η or λ.")


def _numbers(rule: Rule, coordinates: int | None, squared_gradient: float | None) -> dict[str, Any]:
    """L and C, or an error for one that the rule needs and that is missing."""
    coupled = isinstance(rule, AdamRule) and not rule.decoupled and rule.weight_decay > 0
    if squared_gradient is None and (isinstance(rule, SGDRule) or coupled):
        raise ValueError("squared_gradient must be given: the mean of ‖∇‖²‖w‖² over steps.")
    if coordinates is None and isinstance(rule, AdamRule | LionRule):
        raise ValueError("coordinates must be given: the number of coordinates of the block.")
    for name, value in (("squared_gradient", squared_gradient), ("coordinates", coordinates)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0; got {value}.")
    return {"squared_gradient": squared_gradient or math.nan, "coordinates": coordinates or 0}


def _time(rule: Rule, needs: dict[str, Any]) -> float:
    """The steps in which the difference from the equilibrium falls by a factor e."""
    if isinstance(rule, SGDRule):
        return (1 - rule.momentum) / (4 * rule.dampened_rate * rule.weight_decay)
    pull = rule.learning_rate * rule.weight_decay
    if isinstance(rule, AdamRule) and not rule.decoupled:
        norm = rule.equilibrium(**needs)[0]
        # The decay is divided by the gradient's size, √(L/C)/‖w‖: d‖w‖/dt = −ηλ‖w‖²√(C/L) + η²C/2‖w‖.
        return math.sqrt(needs["squared_gradient"] / needs["coordinates"]) / (3 * pull * norm)
    return 1 / (2 * pull)
