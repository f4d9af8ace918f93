"""One generator of checks, for pytest, a plain call, and the command line.

What is claimed is attacked; what is not claimed must be broken. Both are claims.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from normgeom import transforms as all_transforms
from normgeom.invariance import Kind
from normgeom.layers import Layer, as_layer
from normgeom.testing.attack import attack, attack_bits
from normgeom.testing.degenerate import DEGENERATE, check_finite
from normgeom.testing.evidence import Evidence
from normgeom.transforms import TABLE_1

Expectation = Literal["invariant", "broken", "bit_exact", "finite"]


@dataclass(frozen=True, eq=False)
class InvarianceCheck:
    """One check of one layer: call it, and it raises an AssertionError with the evidence unless it holds.

    Attributes:
        evidence: the layer, with the sizes and the type that it is checked at; the same for all its checks.
        subject: an action's class, or the name of a degenerate point.
        expectation: `invariant` (attacked by Hypothesis), `broken` (by a seeded draw), `bit_exact` (identical
            bits under powers of two, without eps), `finite` (outputs and gradients at a degenerate point).
        examples: how many inputs Hypothesis tries.
    """

    evidence: Evidence
    subject: Any
    expectation: Expectation
    examples: int = 25

    @property
    def layer(self) -> Layer:
        """The layer."""
        return self.evidence.layer

    @property
    def id(self) -> str:
        """The layer, the action and what is expected: `MyNorm-CaseRescale-invariant`."""
        subject = getattr(self.subject, "__name__", self.subject)
        return f"{self.layer.name}-{subject}-{self.expectation}"

    def __call__(self) -> None:
        """Run the check.

        Raises:
            AssertionError: with the witness, the law, and what is to blame, if it does not hold.
        """
        __tracebackhide__ = True
        runs: dict[str, Any] = {
            "invariant": partial(attack, examples=self.examples),
            "broken": _check_broken,
            "bit_exact": partial(attack_bits, examples=self.examples),
            "finite": check_finite,
        }
        runs[self.expectation](self.evidence, self.subject)

    def __repr__(self) -> str:
        """The id."""
        return f"InvarianceCheck({self.id})"


def invariance_checks(
    layer: Any,
    claims: Iterable[Any] = (),
    *,
    transforms: Sequence[Any] = TABLE_1,
    units: int | None = None,
    inputs: int | None = None,
    cases: int | None = None,
    dtype: torch.dtype = torch.float64,
    bit_exact: bool = False,
    degenerate: bool | None = None,
    examples: int = 25,
) -> Iterator[InvarianceCheck]:
    """Yield the checks of a layer: one for each action, and those of degenerate points.

    Args:
        layer: a norm, a module, or a function of (weight, data); see `as_layer`.
        claims: the actions that leave it unchanged, exactly or up to its eps, as classes or their names.
        transforms: the actions that are checked; claims outside of them are added.
        units: units of the points; what the layer's parameters fix, else 4.
        inputs: inputs of the points, else 3.
        cases: cases of the points, else 5.
        dtype: the type the layer is evaluated in, such as torch.float32 or torch.bfloat16.
        bit_exact: whether claimed re-scalings must leave identical bits under powers of two, at eps = 0.
        degenerate: whether outputs and gradients must be finite where a statistic is 0; by default if the
            layer has an eps, told or found in its code.
        examples: how many inputs Hypothesis tries for a claim.

    Raises:
        ValueError: for a claim that names no action, or an impossible number of examples.
        TypeError: for something that is not a layer.

    >>> import normgeom as ng
    >>> [check.id for check in invariance_checks(ng.RMSNorm(), claims=[ng.CaseRescale])][-1]
    'RMSNorm-CaseRescale-invariant'
    """
    if not isinstance(examples, int) or examples < 1:
        raise ValueError(f"examples must be a whole number, at least 1; got {examples!r}.")
    claimed = [_action(claim) for claim in claims]
    sizes = {"units": units, "inputs": inputs, "cases": cases}
    evidence = Evidence(as_layer(layer), sizes, dtype)
    actions = [*transforms, *(c for c in claimed if c not in transforms)]
    return _checks(evidence, actions, claimed, examples, bit_exact, degenerate)


def _checks(
    evidence: Evidence,
    actions: Sequence[Any],
    claimed: Sequence[Any],
    examples: int,
    bit_exact: bool,
    degenerate: bool | None,
) -> Iterator[InvarianceCheck]:
    # A first export loads torch's compiler for a second: it happens here, and is no part of any check.
    wanted = evidence.has_eps if degenerate is None else degenerate
    for action in actions:
        if action in claimed:
            yield InvarianceCheck(evidence, action, "invariant", examples)
            if bit_exact and action.sign is not None:
                yield InvarianceCheck(evidence, action, "bit_exact", examples)
        else:
            yield InvarianceCheck(evidence, action, "broken")
    if wanted:
        for name in DEGENERATE:
            yield InvarianceCheck(evidence, name, "finite")


def _action(claim: Any) -> Any:
    """Return the action's class that a claim means."""
    known = {k: v for k, v in vars(all_transforms).items() if hasattr(v, "sample") and hasattr(v, "title")}
    if isinstance(claim, str):
        if claim not in known:
            raise ValueError(f"a claim must name an action, of {', '.join(sorted(known))}; got {claim!r}.")
        return known[claim]
    if not (isinstance(claim, type) and hasattr(claim, "sample")):
        raise ValueError(
            f"a claim must be an action's class or its name, such as 'CaseRescale'; got {claim!r}."
        )
    return claim


def _check_broken(evidence: Evidence, action: Any) -> None:
    """Raise an error unless a seeded draw breaks the invariance."""
    __tracebackhide__ = True
    verdict = evidence.verdict(action)
    if verdict.kind is Kind.UNDECIDED:
        raise AssertionError(f"nothing can be decided, neither for nor against the claim:\n{verdict}")
    if verdict.holds:
        raise AssertionError(
            f"{verdict.layer} is not claimed to be invariant under {action.__name__}, but it is. Add "
            f"{action.__name__!r} to claims, or break the invariance.\n{verdict}"
        )
