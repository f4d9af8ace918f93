"""SGD lengthens blocks whose scale the function does not see by exactly what their gradients say."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from normgeom.dynamics.laws.check import (
    GRADIENT_ROUNDINGS,
    ROUNDINGS,
    LawCheck,
    StepSeen,
    judged,
    settings_seen,
)
from normgeom.dynamics.laws.history import History
from normgeom.dynamics.laws.terms import Rates, Term, block_names, decay_of, seen_by, written
from normgeom.optimizers.rules import SGDRule

_DOUBLE, _INSIDE = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps / 2


class NormGrowth:
    """`Σ k_p ‖w_p‖²` grows by exactly `η² Σ k_p ‖∇_p‖²` in a step of plain SGD, since `Σ k_p ⟨w_p, ∇_p⟩ = 0`.

    One block, k = 1: `‖w‖² -> (1 − ηλ)² ‖w‖² + η² ‖∇‖²` (van Laarhoven 2017). Under gradient flow the sum is
    conserved (Du, Hu, Lee 2018; Kunin et al. 2021). Blocks whose learning rates differ count with
    `k_p η_1/η_p`, and where weight decay differs, what it does to each is part of the prediction.

    Args:
        terms: the blocks, with as many parts each; every part has a law of its own.
        labels: of the parts.
        known: whether the symmetry was found on the function itself, and is not a hypothesis.
        up_to_eps: whether an eps of the model breaks it.
        name: of the law.
    """

    def __init__(
        self,
        terms: Sequence[Term],
        labels: Sequence[str],
        *,
        known: bool = False,
        up_to_eps: bool = False,
        name: str = "norm growth",
    ) -> None:
        self.terms, self.labels, self.name = terms, tuple(labels), name
        self.known, self.up_to_eps = known, up_to_eps
        self.history = History()
        self._rates = Rates(terms)
        self._sums: dict[str, Tensor] = {}
        self._why, self._unit = "", 0.0
        self._settings: list[list[tuple[float, float]]] = []

    def start(self, buffers: Mapping[str, Tensor | None]) -> None:
        """Do nothing: each step is predicted from the weights before it."""

    def see(self, steps: Mapping[str, StepSeen]) -> None:
        """Add a step to the record."""
        seen = seen_by(self.terms, steps)
        if not seen:
            return
        self._why = self._why or self._rates.why_not(seen) or _why_momentum(seen)
        self._settings.append([(s.rule.learning_rate, s.rule.learning_rate * decay_of(s)) for s in seen])
        found = self._products(seen)
        self._sums = {k: self._sums[k] + v if k in self._sums else v for k, v in found.items()}
        self.history.add(*(self._sums[name] for name in ("predicted", "measured", "grown")))

    def _products(self, seen: Sequence[StepSeen]) -> dict[str, Tensor]:
        """The sums over terms that the law is made of, (parts,), and the terms' products, (terms, parts)."""
        each = [_products_of(term, step) for term, step in zip(self.terms, seen, strict=True)]
        found = {name: torch.stack([own[name] for own in each]) for name in _PAIRS}
        first, self._unit = found["ww"], max(step.unit for step in seen)
        share, eta, pull = (
            first.new_tensor(values)[:, None]
            for values in (self._rates.shares, *zip(*self._settings[-1], strict=True))
        )
        unit = first.new_tensor([step.unit for step in seen])[:, None]
        grown = eta**2 * found["gg"]
        shrink = ((1 - pull) ** 2 - 1) * found["ww"]
        # Where decay differs, its pull on ⟨w, ∇⟩ of each block does not add up to nothing.
        uneven = 2 * eta * (pull - pull[0]) * found["gw"]
        rounding = ROUNDINGS * found["aa"] + GRADIENT_ROUNDINGS * eta * (found["ww"] * found["gg"]).sqrt()
        return {
            "measured": (share * (2 * found["mw"] + found["mm"])).sum(0),
            "predicted": (share * (shrink + grown + uneven)).sum(0),
            "grown": (share.abs() * grown).sum(0),
            "rounding": (share.abs() * unit * rounding).sum(0),
            "radial": (2 * (1 - pull[0]) * share * eta * found["gw"]).sum(0),
            "reach": (2 * share.abs() * eta * (found["ww"] * found["gg"]).sqrt()).sum(0),
            **{name: found[name] for name in ("ww", "gg", "gw", "mg", "mw")},
        }

    @property
    def quantity(self) -> str:
        """What is conserved under gradient flow."""
        names = block_names(self.terms, self.labels)
        return written(self._rates.shares, [f"‖{name}‖²" for name in names])

    def checks(self) -> list[LawCheck]:
        """Return the verdict on every part."""
        if not self._sums:
            return []
        sums = self._sums
        error = (sums["measured"] - sums["predicted"]).abs() / sums["grown"]
        tolerance = sums["rounding"] / sums["grown"]
        holds: list[Any] = [None] * len(self.labels) if self._why else judged(error, tolerance)
        return [self._check(k, label, error, tolerance, holds[k]) for k, label in enumerate(self.labels)]

    def _check(self, k: int, label: str, error: Tensor, tolerance: Tensor, holds: bool | None) -> LawCheck:
        reason = self._reason(k, holds)
        if holds is False and self.known and self._is_radial(k) and (why := self._why_hidden(k)):
            holds, reason = None, f"{why} by {float(error[k]):.1e}"
        predicted, measured = (float(self._sums[name][k]) for name in ("predicted", "measured"))
        numbers = predicted, measured, float(error[k]), float(tolerance[k])
        return LawCheck(self.name, label, *numbers, holds, reason, self.quantity)

    def _why_hidden(self, k: int) -> str:
        """What hides the law of a known symmetry, where the gradients have a part along the weights."""
        if self.up_to_eps:
            return "the model's eps breaks the symmetry, and the law"
        if self._unit <= _DOUBLE and abs(self._cosine(k)) <= GRADIENT_ROUNDINGS * _INSIDE:
            return "the gradients are rounded as by float32 inside of the model, which hides the law"
        return ""

    def _cosine(self, k: int) -> float:
        """The mean cosine of weights and gradients."""
        return float(self._sums["radial"][k] / self._sums["reach"][k])

    def _is_radial(self, k: int) -> bool:
        """Whether the gradients' part along the weights is all that parts the run from the law."""
        sums = self._sums
        left = sums["measured"][k] - sums["predicted"][k] + sums["radial"][k]
        return bool(left.abs() <= sums["rounding"][k])

    def _reason(self, k: int, holds: bool | None) -> str:
        """Why a law does not hold: the step, or the gradient's part along the weights."""
        sums = self._sums
        if self._why:
            return self._why
        if not sums["grown"][k] > 0:
            still = bool((sums["gg"][:, k] > 0).any())
            return "every learning rate was 0" if still else "no gradient reached the block"
        if holds is None:
            hidden = float(sums["rounding"][k] / sums["grown"][k])
            advice = "use float64" if self._unit > _DOUBLE else "its gradient is too small beside its length"
            return f"rounding of the weights hides {min(hidden, 1.0):.0%} of it: {advice}"
        if holds:
            return ""
        if self._is_radial(k):
            return (
                f"the gradient has a part along the weights (mean cosine {self._cosine(k):.1e}): the block "
                "is not scale invariant, or an eps > 0 breaks it by this much"
            )
        return self._other_settings(k) or "the step is not the gradient's: something else moved the weights"

    def _other_settings(self, k: int) -> str:
        """How the steps of a block differ from those that its settings say, or nothing."""
        means = torch.tensor(self._settings, dtype=torch.float64).mean(0).tolist()
        for place, (rate, decay) in enumerate(means):
            own = {name: self._sums[name][place, k : k + 1] for name in ("ww", "gg", "gw", "mg", "mw")}
            if found := settings_seen(own, rate, decay)[0]:
                return found
        return ""


def _why_momentum(seen: Sequence[StepSeen]) -> str:
    if any(isinstance(step.rule, SGDRule) and step.rule.momentum for step in seen):
        return "momentum: a step has a part of earlier gradients along w"
    return ""


def _products_of(term: Term, step: StepSeen) -> dict[str, Tensor]:
    """The inner products of the parts of weights w, gradient g, move m and weights after a, two by two."""
    w, after = term.vectors(step.before), term.vectors(step.after)
    g = torch.zeros_like(w) if step.gradient is None else term.vectors(step.gradient)
    of = {"w": w, "g": g, "m": after - w, "a": after}
    return {name: (of[name[0]] * of[name[1]]).sum(1) for name in _PAIRS}


_PAIRS = ("ww", "gg", "gw", "mg", "mw", "mm", "aa")
