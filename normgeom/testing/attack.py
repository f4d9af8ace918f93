"""A claimed invariance attacked by Hypothesis: many small readable points, the worst one shrunk."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from normgeom.invariance import Kind, numeric
from normgeom.invariance.calling import act, evaluate
from normgeom.invariance.verdict import describe
from normgeom.testing import blame, strategies
from normgeom.testing.evidence import Evidence

QUIET = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.nested_given,
]


def attack(evidence: Evidence, action: Any, *, examples: int) -> None:
    """Raise an AssertionError with the smallest example found, unless the layer keeps its outputs.

    Equal means: to what rounding of the type explains, or to the law of the layer's eps, told or found in its
    code.
    """
    __tracebackhide__ = True
    verdict, said = evidence.verdict(action), []
    if verdict.kind is Kind.UNDECIDED:
        raise AssertionError(f"nothing can be decided, neither for nor against the claim:\n{verdict}")
    point: dict[str, Any] = {"dtype": evidence.dtype, "draws": 1, "seen": evidence.with_hidden_eps(action)}

    def judge(weight: torch.Tensor, data: torch.Tensor, element: Any) -> None:
        point["generator"] = torch.Generator().manual_seed(0)
        found = numeric.judge(evidence.layer, element, weight=weight, data=data, **point)
        said.append(found)
        if found.kind is Kind.UNDECIDED and "own arithmetic" in found.reason:
            raise AssertionError(blame.rounded(action, found))
        broken = found.kind is Kind.NOT_INVARIANT
        if broken and not (verdict.holds and evidence.kept_without_rounding(element, weight, data)):
            raise AssertionError(blame.broken(evidence.layer, action, found, verdict))

    _run(evidence, action, judge, examples)
    if not verdict.holds:
        raise AssertionError(blame.broken(evidence.layer, action, verdict, verdict))
    if all(v.kind is Kind.UNDECIDED for v in said):
        raise AssertionError(f"nothing can be decided at any of {len(said)} points:\n{said[-1]}")


def attack_bits(evidence: Evidence, action: Any, *, examples: int) -> None:
    """Raise an AssertionError unless scales 2^k leave every bit of the outputs, at eps = 0.

    Multiplying by a power of two rounds nothing, so a layer that is invariant has the same bits; it has
    others if it adds an eps, or scales by anything that is rounded.
    """
    __tracebackhide__ = True
    layer, dtype = evidence.layer, evidence.dtype
    bare = layer.with_eps(0.0) if layer.eps else layer
    finite = []

    def judge(weight: torch.Tensor, data: torch.Tensor, element: Any) -> None:
        before = evaluate(bare, weight.to(dtype), data.to(dtype))
        after = evaluate(bare, *act(element, weight.to(dtype), data.to(dtype)))
        finite.append(bool(before.isfinite().all()))
        if not torch.equal(before, after) and finite[-1]:
            at = tuple(int(i) for i in (before != after).nonzero()[0])
            why = (
                evidence.eps_in_code(action) or "there is an eps inside the layer, or a scale that is rounded"
            )
            raise AssertionError(
                f"{layer.name} must have identical bits under {action.__name__} by powers of two, without "
                f"eps. In {dtype} the output at {at} is {before[at].item()!r}, then {after[at].item()!r}: "
                f"{why}.\nweight = {weight.tolist()}\ndata   = {data.tolist()}\naction = {describe(element)}"
            )

    _run(evidence, action, judge, examples, powers_of_two=True)
    if not any(finite):
        raise AssertionError(
            f"the outputs of {layer.name} without eps are not finite at any of {len(finite)} points."
        )


def _run(
    evidence: Evidence,
    action: Any,
    judge: Callable[[torch.Tensor, torch.Tensor, Any], None],
    examples: int,
    *,
    powers_of_two: bool = False,
) -> None:
    """Call `judge` on points and elements that Hypothesis draws; the error is that of the shrunk example."""
    __tracebackhide__ = True
    weight_shape, data_shape = evidence.shapes(action)

    @st.composite
    def moved_points(draw: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
        weight = draw(strategies.weights(*weight_shape))
        data = draw(strategies.datasets(*data_shape))
        return weight, data, draw(strategies.transforms(action, weight, data, powers_of_two=powers_of_two))

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=QUIET,
        report_multiple_bugs=False,
    )
    @given(moved_points())
    def every_example(example: tuple[torch.Tensor, torch.Tensor, Any]) -> None:
        judge(*example)

    try:
        every_example()
    except AssertionError as why:
        # Hypothesis notes the example again, in tensors; the message has it in short.
        raise AssertionError(str(why)) from None
