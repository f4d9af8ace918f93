"""What a law predicted, what was measured, and whether that is within rounding."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from normgeom.optimizers.rules import Rule, SGDRule


@dataclass(frozen=True)
class LawCheck:
    """One law on one block, or on several that a joint symmetry moves together.

    Attributes:
        law: its name.
        block: the block, or the label of the joint symmetry.
        predicted: what the law says: of norms the growth, of sums the largest after the last step.
        measured: what the run did.
        error: the difference, relative to the law's own scale.
        tolerance: how large the error can be from rounding.
        holds: whether it is not larger; None if the law does not apply, or rounding or an eps hides it.
        reason: why not, or why it does not apply.
        quantity: what is conserved under gradient flow.
    """

    law: str
    block: str
    predicted: float
    measured: float
    error: float
    tolerance: float
    holds: bool | None
    reason: str = ""
    quantity: str = ""


@dataclass(frozen=True)
class LawReport:
    """All laws on all blocks; `report["norm growth", "0.weight"]` is one of them."""

    checks: tuple[LawCheck, ...]

    def __getitem__(self, key: tuple[str, str]) -> LawCheck:
        """Return the check of a law on a block."""
        for one in self.checks:
            if (one.law, one.block) == key:
                return one
        known = ", ".join(f"{(one.law, one.block)}" for one in self.checks)
        raise KeyError(f"no check {key}; there are {known}")

    def __iter__(self) -> Iterator[LawCheck]:
        """Iterate over the checks."""
        return iter(self.checks)

    def __len__(self) -> int:
        """Return the number of checks."""
        return len(self.checks)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for every check."""
        return pd.DataFrame([vars(one) for one in self.checks])

    def __repr__(self) -> str:
        """Return the table, of many laws only of those that do not hold, and how many do."""
        frame = self.to_frame().drop(columns="quantity")
        held = sum(one.holds is True for one in self)
        if len(self) > _MANY:
            frame = frame[[one.holds is not True for one in self]].head(_MANY)
        frame["block"] = frame["block"].map(shortened)
        frame["holds"] = frame["holds"].map({True: "yes", False: "NO", None: "-"})
        table = frame.to_string(index=False, float_format="{:.4g}".format) if len(frame) else ""
        unjudged = sum(one.holds is None for one in self)
        rest = f"; {unjudged} do not apply, or rounding or an eps hides them" if unjudged else ""
        return f"{table}\n{held} of {len(self) - unjudged} laws hold{rest}".lstrip()


_MANY = 60


def shortened(text: str, most: int = 60) -> str:
    """Return a label or a sum for a table, its middle left out where it would crowd out the rest.

    >>> shortened("a.weight^+1 b.weight^+1 c.weight^-1", 24)
    'a.weight^+1 … c.weight^-1'
    """
    words = re.split(r"(?<!,) ", text)
    return text if len(text) <= most or len(words) < 3 else f"{words[0]} … {words[-1]}"


@dataclass(frozen=True)
class StepSeen:
    """One step of one parameter in float64.

    Attributes:
        before: the weights before.
        gradient: as the optimizer uses it, None if there was none.
        after: the weights after.
        rule: how the optimizer moves them.
        unit: the rounding of their type.
        largest: the largest entry of all gradients that are watched.
        optimizer: the name of its class.
    """

    before: Tensor
    gradient: Tensor | None
    after: Tensor
    rule: Rule
    unit: float
    largest: float
    optimizer: str


# Roundings of one coordinate in a step of SGD: decay, product with the rate, sum.
ROUNDINGS = 4.0
# Roundings of a gradient's component along a direction that the function does not see.
GRADIENT_ROUNDINGS = 64.0
# Beyond this share of what the law says, rounding hides the law.
HIDDEN = 0.1


def judged(error: Tensor, tolerance: Tensor) -> list[bool | None]:
    """Return whether errors are within tolerances; None where the tolerance hides the law."""
    pairs = zip(error.tolist(), tolerance.tolist(), strict=True)
    return [bool(e <= t) if t <= HIDDEN else None for e, t in pairs]


def why_not_sgd(step: StepSeen) -> str:
    """Return why a law of SGD does not apply to a step, or nothing."""
    if isinstance(step.rule, SGDRule):
        return ""
    return f"the law is of SGD; this is {step.optimizer}, whose step is not a multiple of the gradient"


def settings_seen(steps: dict[str, Tensor], rate: float, decay: float) -> list[str]:
    """Return for every part how its steps differ from `Δw = −η ∇ − ηλ w`, or nothing.

    Args:
        steps: sums over steps of the products `gw`, `gg`, `ww`, `mg`, `mw` of gradient g, weights w, move m.
        rate: the mean of η over the steps.
        decay: the mean of ηλ.
    """
    columns = (torch.stack([steps["gg"], steps["gw"]], -1), torch.stack([steps["gw"], steps["ww"]], -1))
    matrix = torch.stack(columns, -1)
    wanted = torch.stack([steps["mg"], steps["mw"]], -1)
    found = -(torch.linalg.pinv(matrix) @ wanted[..., None])[..., 0]
    return [
        f"the steps have learning rate {a:.6g} and decay {b:.6g}, not {rate:.6g} and {decay:.6g}"
        if abs(a - rate) > 1e-6 * rate or abs(b - decay) > 1e-6 * max(decay, rate * 1e-3)
        else ""
        for a, b in found.tolist()
    ]
