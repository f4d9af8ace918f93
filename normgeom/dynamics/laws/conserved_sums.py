"""SGD cannot move sums of blocks along shifts that the function does not see."""

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
)
from normgeom.dynamics.laws.history import History
from normgeom.dynamics.laws.terms import Rates, Term, block_names, decay_of, seen_by, written
from normgeom.optimizers.rules import SGDRule
from normgeom.symmetry.partitions import Move


class ConservedSums:
    """`Σ k_p S(w_p)` is conserved by SGD at any rate, with momentum too, since `Σ k_p S(∇_p) = 0`.

    S sums over the axes along which the shift is constant: `1ᵀW` for `W + 1γᵀ` (layer norm, Ba et al. 2016,
    section 5.1). Under weight decay the sums of one block decay as `(1 − ηλ)^t`; with momentum the
    prediction is the optimizer's own recursion on a gradient of zero.

    Args:
        terms: the blocks, with as many parts each.
        labels: of the parts.
        name: of the law.
    """

    def __init__(self, terms: Sequence[Term], labels: Sequence[str], *, name: str = "column sums") -> None:
        self.terms, self.labels, self.name = terms, tuple(labels), name
        self.history = History()
        self._rates = Rates(terms)
        self._buffer: Tensor | None = None
        self._starts = True
        self._state: dict[str, Tensor] = {}
        self._first = self._said = self._done = torch.zeros(())
        self._why = ""

    def start(self, buffers: Mapping[str, Tensor | None]) -> None:
        """Predict from here on: steps before, and the weights they led to, were not seen.

        Args:
            buffers: the optimizer's momentum buffers, None before its first step.
        """
        found = [(term, buffers[term.parameter]) for term in self.terms]
        known = [term.power * term.sums(value) for term, value in found if value is not None]
        self._buffer = torch.stack(known).sum(0) if known else None
        self._starts = True

    def see(self, steps: Mapping[str, StepSeen]) -> None:
        """Add a step to the record."""
        seen = seen_by(self.terms, steps)
        if not seen:
            return
        self._why = self._why or self._rates.why_not(seen) or _why_settings(seen)
        before = self._summed(self._rates.shares, [step.before for step in seen])
        if not self._rates.ratios and not any(step.rule.learning_rate for step in seen):
            # Before a schedule's first rate above 0, nothing moves but the momentum.
            self._drift(seen)
            return
        if self._starts:
            self._first, self._said, self._starts = before, before, False
        self._said = self._said + self._drift(seen)
        self._done = self._summed(self._rates.shares, [step.after for step in seen])
        self._add(seen)

    def _summed(self, shares: Sequence[float], values: Sequence[Tensor]) -> Tensor:
        """The sums of all blocks together, (parts, numbers)."""
        each = [share * term.sums(v) for share, term, v in zip(shares, self.terms, values, strict=True)]
        return torch.stack(each).sum(0)

    def _drift(self, seen: Sequence[StepSeen]) -> Tensor:
        """The change of the sums in a step of SGD whose gradients' sums are zero."""
        rule = seen[0].rule
        pulls = [term.power * decay_of(step) for term, step in zip(self.terms, seen, strict=True)]
        pull = self._summed(pulls, [step.before for step in seen])
        if not isinstance(rule, SGDRule):
            return torch.zeros_like(pull)
        if rule.momentum:
            kept = pull
            if self._buffer is not None:
                kept = rule.momentum * self._buffer + (1 - rule.dampening) * pull
            self._buffer = kept
            pull = pull + rule.momentum * kept if rule.nesterov else kept
        return -rule.learning_rate * pull

    def _add(self, seen: Sequence[StepSeen]) -> None:
        """Add errors and rounding of a step."""
        gradients = [torch.zeros_like(s.before) if s.gradient is None else s.gradient for s in seen]
        shares = [abs(share) for share in self._rates.shares]
        size = self._summed(shares, [step.before.abs() for step in seen]).amax(1)
        slope = self._summed(shares, [value.abs() for value in gradients]).amax(1)
        tilt = self._summed([term.power for term in self.terms], gradients).abs().amax(1)
        if self.terms[0].move is Move.ANY and len(self.terms) == 1:
            # All of a dead block's gradient is rounding, of the sums it is made of.
            slope = slope.clamp_min(seen[0].largest)
        rule, unit = seen[0].rule, max(step.unit for step in seen)
        reach = rule.learning_rate / (1 - getattr(rule, "momentum", 0.0)) * slope
        new = {
            "error": (self._done - self._said).abs().amax(1),
            "rounding": unit * (ROUNDINGS * size + GRADIENT_ROUNDINGS * reach),
            "reach": reach,
            "worst": (tilt / slope).nan_to_num(0.0),
        }
        state = self._state or {"first": size, **{name: torch.zeros_like(size) for name in new}}
        sums = {name: state[name] + new[name] for name in ("rounding", "reach")}
        most = {name: torch.maximum(state[name], new[name]) for name in ("error", "worst")}
        # Sums that begin at zero are judged by how far the gradients could have moved them.
        scale = torch.maximum(state["first"], sums["reach"])
        self._state = {"first": state["first"], "scale": scale, **sums, **most}
        said, done = ((value - self._first).norm(dim=1) for value in (self._said, self._done))
        self.history.add(said, done, scale)

    @property
    def quantity(self) -> str:
        """What is conserved under gradient flow."""
        words = {Move.SHIFT_UNITS: "column sums of ", Move.SHIFT_INPUTS: "row sums of "}
        names = block_names(self.terms, self.labels)
        sums = [words.get(term.move, "") + name for term, name in zip(self.terms, names, strict=True)]
        return written(self._rates.shares, sums)

    def checks(self) -> list[LawCheck]:
        """Return the verdict on every part; the sums' largest entry stands for them."""
        if not self._state:
            return []
        error, tolerance = (self._state[name] / self._state["scale"] for name in ("error", "rounding"))
        holds: list[Any] = [None] * len(self.labels) if self._why else judged(error, tolerance)
        return [
            LawCheck(
                self.name,
                label,
                float(self._said[k].abs().max()),
                float(self._done[k].abs().max()),
                float(error[k]),
                float(tolerance[k]),
                holds[k],
                self._reason(k, holds[k], float(tolerance[k])),
                self.quantity,
            )
            for k, label in enumerate(self.labels)
        ]

    def _reason(self, k: int, holds: bool | None, tolerance: float) -> str:
        if self._why:
            return self._why
        if holds is None:
            return f"rounding of the weights, {tolerance:.0%}, hides it"
        if holds:
            return ""
        share = float(self._state["worst"][k])
        if share > 1e-3:
            return f"the gradient's column sums are up to {share:.1e} of its size: a shift of units matters"
        return "something beside the gradient moved the sums: not the optimizer's rate, decay or step"


def _why_settings(seen: Sequence[StepSeen]) -> str:
    """Why blocks that momentum moves differently have no common law, or nothing."""
    rules = [step.rule for step in seen]
    found = [*{(r.momentum, r.dampening, r.nesterov) for r in rules if isinstance(r, SGDRule)}]
    return "momentum differs between its blocks: their sums have no common recursion" if found[1:] else ""
