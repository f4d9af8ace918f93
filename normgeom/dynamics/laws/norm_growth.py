"""SGD lengthens a scale-invariant block by exactly what its gradient says."""

import torch
from torch import Tensor

from normgeom.dynamics.laws.check import (
    GRADIENT_ROUNDINGS,
    ROUNDINGS,
    LawCheck,
    StepSeen,
    judged,
    settings_seen,
    why_not_sgd,
)
from normgeom.optimizers.rules import SGDRule


class NormGrowth:
    """`‖w_(t+1)‖² = (1 − ηλ)² ‖w_t‖² + η² ‖∇‖²` for plain SGD, since `⟨w, ∇⟩ = 0` (van Laarhoven 2017)."""

    name = "norm growth"

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._why = ""
        self._rates: list[tuple[float, float]] = []
        self._skips = 0

    def see(self, step: StepSeen) -> None:
        """Add a step to the record."""
        self._why = self._why or why_not_sgd(step.rule)
        if isinstance(step.rule, SGDRule) and step.rule.momentum:
            self._why = self._why or "momentum: a step has a part of earlier gradients along w"
        rate, decay = step.rule.learning_rate, step.rule.weight_decay
        w, g, after = (value.flatten(1) for value in (step.before, step.gradient, step.after))
        move, ww, gg, gw = after - w, w.square().sum(1), g.square().sum(1), (w * g).sum(1)
        grown, shrink = rate**2 * gg, (1 - rate * decay) ** 2 * ww - ww
        terms = {
            "measured": (move * (2 * w + move)).sum(1),
            "predicted": shrink + grown,
            "grown": grown,
            "rounding": step.unit
            * (ROUNDINGS * after.square().sum(1) + GRADIENT_ROUNDINGS * rate * (ww * gg).sqrt()),
            "radial": 2 * rate * (1 - rate * decay) * gw,
            **{"gg": gg, "gw": gw, "ww": ww, "mg": (move * g).sum(1), "mw": (move * w).sum(1)},
        }
        self._sums = {k: self._sums[k] + v if k in self._sums else v for k, v in terms.items()}
        self._rates.append((rate, rate * decay))

    def checks(self, labels: tuple[str, ...]) -> list[LawCheck]:
        """Return the verdict on every part."""
        if not self._sums:
            return []
        sums = self._sums
        error = (sums["measured"] - sums["predicted"]).abs() / sums["grown"]
        tolerance = sums["rounding"] / sums["grown"]
        holds = judged(error, tolerance) if not self._why else [None] * len(labels)
        rate, decay = torch.tensor(self._rates, dtype=torch.float64).mean(0).tolist()
        settings = settings_seen(sums, rate, decay)
        return [
            LawCheck(
                self.name,
                label,
                float(sums["predicted"][k]),
                float(sums["measured"][k]),
                float(error[k]),
                float(tolerance[k]),
                holds[k],
                self._reason(k, holds[k], settings[k]),
            )
            for k, label in enumerate(labels)
        ]

    def _reason(self, k: int, holds: bool | None, settings: str) -> str:
        """Why a law does not hold: the step, or the gradient's part along the weights."""
        sums = self._sums
        if self._why:
            return self._why
        if not sums["grown"][k] > 0:
            return "no gradient reached the block"
        if holds is None:
            hidden = float(sums["rounding"][k] / sums["grown"][k])
            return f"rounding of the weights hides {hidden:.0%} of it: use float64"
        if holds:
            return ""
        left = sums["measured"][k] - sums["predicted"][k] + sums["radial"][k]
        if left.abs() <= sums["rounding"][k]:
            cosine = float(sums["gw"][k] / (sums["gg"][k] * sums["ww"][k]).sqrt())
            return (
                f"the gradient has a part along the weights (mean cosine {cosine:.1e}): the block is not "
                "scale invariant, or an eps > 0 breaks it by this much"
            )
        return settings or "the step is not the gradient's: something else moved the weights"
