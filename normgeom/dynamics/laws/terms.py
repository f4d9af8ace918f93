"""The blocks that a law sums over, each with its exponent and its share of the learning rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from normgeom.dynamics.laws.check import StepSeen, why_not_sgd
from normgeom.symmetry.partitions import Move, Partition

_SAME = 1e-9


@dataclass(frozen=True)
class Term:
    """A block of a law.

    Attributes:
        partition: its parts; in a law of several terms each has as many.
        power: k, the exponent of a scale or the multiple of a shift.
        move: what the function does not see.
        free: which parts; None: all.
    """

    partition: Partition
    power: int = 1
    move: Move = Move.SCALE
    free: tuple[int, ...] | None = None

    @property
    def parameter(self) -> str:
        """The tensor that it lies in."""
        return self.partition.view.parameter

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the parts."""
        labels = self.partition.view.labels
        return labels if self.free is None else tuple(labels[k] for k in self.free)

    def vectors(self, tensor: Tensor) -> Tensor:
        """Return the parts of a tensor of the parameter's shape as (parts, coordinates)."""
        return self._parts(tensor).flatten(1)

    def sums(self, tensor: Tensor) -> Tensor:
        """Return the sums over the axes along which the move is constant as (parts, numbers)."""
        axes = self.partition.constant_axes(self.move)
        parts = self._parts(tensor)
        return (parts.sum(axes, keepdim=True) if axes else parts).flatten(1)

    def _parts(self, tensor: Tensor) -> Tensor:
        folded = self.partition.fold(tensor)
        return folded if self.free is None else folded[list(self.free)]


@dataclass
class Rates:
    """The learning rates of a law's blocks, whose ratios say what is conserved.

    Under gradient flow, `dw_p/dt = −η_p ∇_p`, it is `Σ k_p ‖w_p‖² η_1/η_p`, and so for sums.
    """

    terms: Sequence[Term]
    ratios: tuple[float, ...] = ()

    @property
    def shares(self) -> list[float]:
        """`k_p η_1/η_p` of every block."""
        ratios = self.ratios or (1.0,) * len(self.terms)
        return [term.power * ratio for term, ratio in zip(self.terms, ratios, strict=True)]

    def why_not(self, steps: Sequence[StepSeen]) -> str:
        """Take the ratios of the first step, and return why a law of SGD does not apply, or nothing."""
        for step in steps:
            if why := why_not_sgd(step):
                return why
        rates = [step.rule.learning_rate for step in steps]
        if not all(rates):
            return "one of its blocks has learning rate 0: nothing is conserved" if any(rates) else ""
        found = tuple(rates[0] / rate for rate in rates)
        self.ratios = self.ratios or found
        if any(abs(a - b) > _SAME * b for a, b in zip(found, self.ratios, strict=True)):
            return "the ratio of its blocks' learning rates changed, and what is conserved with it"
        return ""


def seen_by(terms: Sequence[Term], steps: Mapping[str, StepSeen]) -> list[StepSeen]:
    """Return the steps of the terms' parameters; none if no gradient reached any of them."""
    found = [steps[term.parameter] for term in terms]
    return found if any(step.gradient is not None for step in found) else []


def block_names(terms: Sequence[Term], labels: Sequence[str]) -> list[str]:
    """Return what the blocks of a law are called where one text stands for all its parts."""
    return ["each part"] if len(labels) > 1 else [term.labels[0] for term in terms]


def written(shares: Sequence[float], of: Sequence[str]) -> str:
    """Return a sum in words, such as `‖a‖² − 2 ‖b‖²`."""
    signs = [" − " if share < 0 else " + " for share in shares]
    sizes = ["" if abs(share) == 1 else f"{abs(share):.4g} " for share in shares]
    text = "".join(f"{sign}{size}{one}" for sign, size, one in zip(signs, sizes, of, strict=True))
    return text.removeprefix(" + ").replace(" − ", "−", 1) if shares[0] < 0 else text.removeprefix(" + ")


def decay_of(step: StepSeen) -> float:
    """Return λ, 0 for a block without a gradient: torch's optimizers leave it alone."""
    return 0.0 if step.gradient is None else step.rule.weight_decay
