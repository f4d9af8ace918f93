"""SGD cannot move the column sums of a block that sees shifts of all its units as nothing."""

from typing import Any

import torch
from torch import Tensor

from normgeom.dynamics.laws.check import (
    GRADIENT_ROUNDINGS,
    ROUNDINGS,
    LawCheck,
    StepSeen,
    judged,
    why_not_sgd,
)
from normgeom.optimizers.rules import SGDRule


class ColumnSums:
    """`1ᵀW` is conserved by SGD at any rate and with momentum, and decays as `(1 − ηλ)^t` under weight decay.

    Since `1ᵀ∇ = 0` for layer norm (Ba et al. 2016, section 5.1). With momentum and decay the prediction is
    the optimizer's own recursion on a gradient of zero.
    """

    name = "column sums"

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._starts = True
        self._predicted: Tensor
        self._scale: Tensor | None = None
        self._error: Tensor
        self._rounding: Tensor
        self._worst: Tensor
        self._why = ""

    def start(self, buffer: Tensor | None) -> None:
        """Predict from here on: steps before, and the weights they led to, were not seen.

        Args:
            buffer: the optimizer's momentum buffer (parts, rows, columns), None before its first step.
        """
        self._buffer = None if buffer is None else buffer.sum(1)
        self._starts = True

    def see(self, step: StepSeen) -> None:
        """Add a step to the record."""
        self._why = self._why or why_not_sgd(step.rule)
        before, after = step.before.sum(1), step.after.sum(1)
        size = step.before.abs().sum(1).amax(1)
        if self._starts:
            self._predicted, self._starts = before, False
        if self._scale is None:
            self._error, self._rounding, self._worst = (torch.zeros_like(size) for _ in range(3))
            self._scale = size
        if isinstance(step.rule, SGDRule):
            self._predicted = self._stepped(self._predicted, step.rule)
        self._measured = after
        self._error = torch.maximum(self._error, (after - self._predicted).abs().amax(1))
        slope = step.gradient.abs().sum(1).amax(1)
        reach = step.rule.learning_rate / (1 - getattr(step.rule, "momentum", 0.0))
        self._rounding += step.unit * (ROUNDINGS * size + GRADIENT_ROUNDINGS * reach * slope)
        share = step.gradient.sum(1).abs().amax(1) / slope
        self._worst = torch.maximum(self._worst, share.nan_to_num(0.0))

    def _stepped(self, sums: Tensor, rule: SGDRule) -> Tensor:
        """One step of SGD on column sums whose gradient is zero."""
        pull = rule.weight_decay * sums
        if rule.momentum:
            fresh = self._buffer is None
            kept = pull if fresh else rule.momentum * self._buffer + (1 - rule.dampening) * pull  # type: ignore[operator]
            self._buffer = kept
            pull = pull + rule.momentum * kept if rule.nesterov else kept
        return sums - rule.learning_rate * pull

    def checks(self, labels: tuple[str, ...]) -> list[LawCheck]:
        """Return the verdict on every part; the sums' largest entry stands for them."""
        if self._scale is None:
            return []
        error, tolerance = self._error / self._scale, self._rounding / self._scale
        holds: list[Any] = [None] * len(labels) if self._why else judged(error, tolerance)
        return [
            LawCheck(
                self.name,
                label,
                float(self._predicted[k].abs().max()),
                float(self._measured[k].abs().max()),
                float(error[k]),
                float(tolerance[k]),
                holds[k],
                self._reason(k, holds[k], float(tolerance[k])),
            )
            for k, label in enumerate(labels)
        ]

    def _reason(self, k: int, holds: bool | None, tolerance: float) -> str:
        if self._why:
            return self._why
        if holds is None:
            return f"rounding of the weights, {tolerance:.0%}, hides it"
        if holds:
            return ""
        share = float(self._worst[k])
        if share > 1e-3:
            return f"the gradient's column sums are up to {share:.1e} of its size: a shift of units matters"
        return "something beside the gradient moved the sums: not the optimizer's rate, decay or step"
