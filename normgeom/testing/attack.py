"""A claimed invariance attacked by Hypothesis: many small readable points, the worst one shrunk."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from normgeom.invariance import Kind, Verdict, check, graph, numeric
from normgeom.invariance._points import Sizes
from normgeom.invariance.measure import act, evaluate
from normgeom.invariance.verdict import describe
from normgeom.layers import Layer, NormLayer
from normgeom.testing import strategies

USUAL = Sizes(units=4, inputs=3, cases=5)
QUIET = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.nested_given,
]


def attack(layer: Layer, action: Any, *, dtype: torch.dtype, examples: int, **sizes: int | None) -> None:
    """Raise an AssertionError with the smallest example found, unless the layer keeps its outputs.

    Equal means: to what rounding of `dtype` explains, or to the law of the layer's eps, told or found in its
    code.
    """
    (verdict,) = check(layer, (action,), dtype=dtype, **sizes)  # type: ignore[arg-type]
    if verdict.kind is Kind.UNDECIDED:
        raise AssertionError(f"nothing can be decided, neither for nor against the claim:\n{verdict}")
    seen = _with_hidden_eps(layer, action, sizes)

    def judge(weight: torch.Tensor, data: torch.Tensor, element: Any) -> None:
        generator = torch.Generator().manual_seed(0)
        point: dict[str, Any] = {"weight": weight, "data": data, "dtype": dtype, "draws": 1, "seen": seen}
        found = numeric.judge(layer, element, generator=generator, **point)
        if found.kind is Kind.NOT_INVARIANT:
            raise AssertionError(_broken(layer, action, found, verdict.reason))
        if found.kind is Kind.UNDECIDED and "own arithmetic" in found.reason:
            raise AssertionError(
                f"{layer.name} is claimed to be invariant under {action.__name__}. In exact arithmetic it "
                f"is; rounding is to blame.\n{found}"
            )

    _run(layer, action, judge, examples, sizes)
    if not verdict.holds:
        raise AssertionError(_broken(layer, action, verdict))


def _with_hidden_eps(layer: Layer, action: Any, sizes: dict[str, int | None]) -> Layer | None:
    """The layer's graph, where its code shows an eps that the layer does not tell."""
    if isinstance(layer, NormLayer):
        return None
    shapes = Sizes.of(layer, action, USUAL, **sizes).shapes(layer)
    try:
        return graph.with_hidden_eps(layer, graph.export(layer, *shapes))
    except graph.NoGraph:
        return None


def attack_bits(layer: Layer, action: Any, *, dtype: torch.dtype, examples: int, **sizes: int | None) -> None:
    """Raise an AssertionError unless scales 2^k leave every bit of the outputs, at eps = 0.

    Multiplying by a power of two rounds nothing, so a layer that is invariant has the same bits; it has
    others if it adds an eps, or scales by anything that is rounded.
    """
    bare = layer.with_eps(0.0) if layer.eps else layer

    def judge(weight: torch.Tensor, data: torch.Tensor, element: Any) -> None:
        before = evaluate(bare, weight.to(dtype), data.to(dtype))
        after = evaluate(bare, *act(element, weight.to(dtype), data.to(dtype)))
        if not torch.equal(before, after) and bool(before.isfinite().all()):
            at = tuple(int(i) for i in (before != after).nonzero()[0])
            raise AssertionError(
                f"{layer.name} must have identical bits under {action.__name__} by powers of two, without "
                f"eps. In {dtype} the output at {at} is {before[at].item()!r}, then {after[at].item()!r}: "
                "there is an eps inside the layer, or a scale that is rounded.\n"
                f"weight = {weight.tolist()}\ndata   = {data.tolist()}\naction = {describe(element)}"
            )

    _run(bare, action, judge, examples, sizes, powers_of_two=True)


def _run(
    layer: Layer,
    action: Any,
    judge: Callable[[torch.Tensor, torch.Tensor, Any], None],
    examples: int,
    sizes: dict[str, int | None],
    *,
    powers_of_two: bool = False,
) -> None:
    """Call `judge` on points and elements that Hypothesis draws; the error is that of the shrunk example."""
    weight_shape, data_shape = Sizes.of(layer, action, USUAL, **sizes).shapes(layer)

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

    every_example()


def _broken(layer: Layer, action: Any, verdict: Verdict, line: str = "") -> str:
    """Say that a claim does not hold, with what is to blame and, where an engine knows it, the line."""
    text = f"{layer.name} is claimed to be invariant under {action.__name__}, but it is not."
    if verdict.scaling:
        text += f" Its outputs follow a law of their own: they {verdict.scaling}."
    text += f" The layer is to blame: neither rounding nor an eps explains it.\n{verdict}"
    return f"{text}\n  {line}" if line else text
