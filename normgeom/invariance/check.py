"""The public calls: check a row, measure one error, assert one invariance."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from normgeom._types import AnyData, AnyWeight
from normgeom.invariance import graph, numeric
from normgeom.invariance._arrays import check_arrays
from normgeom.invariance._points import Sizes
from normgeom.invariance.calling import act, evaluate
from normgeom.invariance.judges import ENGINES, Judges, engines_for
from normgeom.invariance.measure import relative_change
from normgeom.invariance.remarks import of_gradient, point_of, remarks
from normgeom.invariance.table import InvarianceRow, InvarianceTable
from normgeom.invariance.verdict import Verdict
from normgeom.layers import Layer, NormLayer, as_layer
from normgeom.transforms import TABLE_1


def check(
    layer: Any,
    transforms: Sequence[Any] = TABLE_1,
    *,
    units: int | None = None,
    inputs: int | None = None,
    cases: int | None = None,
    engines: Sequence[str] | None = None,
    weight: AnyWeight | None = None,
    data: AnyData | None = None,
    eps: float | None = None,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
    generator: torch.Generator | None = None,
    graphs: graph.Graphs | None = None,
) -> InvarianceRow:
    """Return a layer's row of Table 1: one verdict for each transform, settled by all engines that apply.

    Args:
        layer: a norm, a module on the summed inputs, or a function of (weight, data); see `as_layer`.
        transforms: actions, as classes (elements are drawn) or as elements.
        units: units of the numeric engine's points, at least 3; what the layer's parameters fix, else 5. The
            other engines take the smallest sizes that decide, so that their evidence can be read.
        inputs: inputs of its points, at least 2; 4 if not given.
        cases: cases of its points, at least 3; 6 if not given.
        engines: names from `numeric`, `exact`, `symbolic`, `graph`, `graph-symbolic`, `abstract`. If not
            given, the first three for a norm, and for other layers `numeric`, `abstract` and `graph`.
        weight: a weight to measure at, shape (units, inputs); drawn from a Gaussian if not given.
        data: data to measure at, shape (cases, inputs); likewise. The other engines draw their own.
        eps: replaces the layer's eps.
        dtype: the type in which the numeric engine evaluates the layer.
        device: where it does.
        generator: a CPU generator for every draw; one seeded with 0 if not given.
        graphs: the graphs of this layer from an earlier call, `invariance.graph.Graphs(layer)`; kept there.

    Raises:
        ValueError: for sizes too small to decide anything, shapes that do not fit, values not finite.
        TypeError: for something that is not a layer.
        EnginesDisagree: if two engines decide one cell differently.

    Source: Ba et al. 2016, Table 1.

    >>> import normgeom as ng
    >>> [verdict.holds for verdict in ng.check(ng.LayerNorm())]
    [True, True, False, True, False, True]
    >>> ng.check(ng.LayerNorm(), eps=1e-5)["CaseRescale"].kind
    <Kind.UP_TO_EPS: 'invariant up to eps'>
    """
    subject = as_layer(layer, eps=eps)
    names = _engines(subject, engines)
    actions = _actions(transforms)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point torch dtype, such as torch.float32; got {dtype!r}.")
    check_arrays(weight, data)
    sizes = {"units": units, "inputs": inputs, "cases": cases}
    Sizes.of(subject, None, numeric.USUAL, **sizes)
    point = {"weight": weight, "data": data, "dtype": dtype, "device": device} | sizes
    generator = generator or torch.Generator().manual_seed(0)
    judges = Judges(subject, names, point, _graphs_of(subject, graphs), generator)
    cells = tuple(_with_gradient(judges, action, judges.verdict(action)) for action in actions)
    of_row = remarks(subject, judges.graph(actions[0]), judges.shapes(actions[0]))
    return InvarianceRow(subject.name, cells, of_row)


def _with_gradient(judges: Judges, transform: Any, verdict: Verdict) -> Verdict:
    """Add to what holds what is wrong with the backward pass of a layer's code."""
    if not verdict.holds or "numeric" not in judges.engines or isinstance(judges.layer, NormLayer):
        return verdict
    point = point_of(judges.shapes(transform))
    said_of_gradient = of_gradient(judges.layer, transform, point, judges.graph(transform))
    return dataclasses.replace(verdict, reason="; ".join(filter(None, [verdict.reason, said_of_gradient])))


def _actions(transforms: Any) -> list[Any]:
    """Return the transforms as a list, and raise an error for what is none."""
    alone = isinstance(transforms, type) or callable(transforms)
    actions = [transforms] if alone else list(transforms)
    for action in actions:
        fit = hasattr(action, "sample") if isinstance(action, type) else callable(action)
        if not fit:
            raise TypeError(
                "a transform must be an action's class, such as ng.CaseRescale, or a callable "
                f"(weight, data) -> (weight, data); got {action!r}."
            )
    if not actions:
        raise ValueError("at least one transform is needed; got none.")
    return actions


def _engines(layer: Layer, engines: Sequence[str] | None) -> list[str]:
    """Return the engines to run: those asked for, else all that can see the layer."""
    if engines is None:
        return list(engines_for(layer))
    names = [engines] if isinstance(engines, str) else list(engines)
    if unknown := [n for n in names if n not in ENGINES]:
        raise ValueError(f"engines must be among {', '.join(ENGINES)}; got {', '.join(map(str, unknown))}.")
    if not names:
        raise ValueError(f"at least one engine is needed, from {', '.join(ENGINES)}; got none.")
    return names


def _graphs_of(subject: Layer, given: graph.Graphs | None) -> graph.Graphs:
    """The graphs given, if they are of this layer, else none yet."""
    if given is not None and given.layer is not subject:
        raise ValueError(
            f"graphs must be those of the layer that is checked, {subject.name}; got {given.layer.name}'s. "
            "Pass the layer that Graphs was made of, as `as_layer` returned it."
        )
    return given or graph.Graphs(subject)


def invariance_table(
    layers: Any,
    transforms: Sequence[Any] = TABLE_1,
    *,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> InvarianceTable:
    """Return the table of several layers: Table 1 for the paper's three.

    Args:
        layers: a sequence of layers, or a dict from the row's name to the layer. Layers of a sequence
            that have one name are numbered.
        transforms: actions, as classes or as elements.
        progress: called with each row's name before the row is checked.
        options: those of `check`, the same for every row.

    >>> import normgeom as ng
    >>> table = ng.invariance_table([ng.BatchNorm(), ng.WeightNorm(), ng.LayerNorm()], engines=["exact"])
    >>> table["BatchNorm", "CaseRescale"].label
    'No'
    """
    if not isinstance(layers, dict | Sequence) or isinstance(layers, str):
        raise TypeError(
            f"layers must be a list of layers or a dict by name; got {layers!r}. For one: ng.check."
        )
    if not layers:
        raise ValueError("a table needs at least one layer; got none.")
    rows = []
    for subject in _named(layers):
        if progress is not None:
            progress(subject.name)
        rows.append(check(subject, transforms, **options))
    return InvarianceTable(tuple(rows))


def _named(layers: Any) -> list[Layer]:
    """The layers of a table under the names of its rows, each name once."""
    if isinstance(layers, dict):
        return [as_layer(layer, name=name) for name, layer in layers.items()]
    subjects = [as_layer(layer) for layer in layers]
    names = [subject.name for subject in subjects]
    return [
        as_layer(subject, name=f"{name} {names[: k + 1].count(name)}") if names.count(name) > 1 else subject
        for k, (name, subject) in enumerate(zip(names, subjects, strict=True))
    ]


def invariance_error(layer: Any, transform: Any, weight: AnyWeight, data: AnyData) -> float:
    """Return the largest change of an output under one element, relative to the largest output.

    `max |f(T(W, X)) - f(W, X)| / max |f(W, X)|`.

    Args:
        layer: a norm, a module on the summed inputs, or a function of (weight, data).
        transform: one element of an action, such as `WeightMatrixRescale(2.5)`.
        weight: shape (units, inputs).
        data: shape (cases, inputs).

    Raises:
        TypeError: for a class in place of an element, or something that is not a layer.
        ValueError: for arrays that are not finite or do not fit, or a transform that writes into them.

    >>> import normgeom as ng
    >>> weight = torch.tensor([[1., 0.], [0., 1.], [1., 3.]])
    >>> data = torch.tensor([[1., 2.], [2., 0.], [0., 1.]])
    >>> ng.invariance_error(ng.RMSNorm(), ng.DatasetRescale(4.0), weight, data)
    0.0
    """
    if isinstance(transform, type):
        raise TypeError(
            f"invariance_error needs one element, such as {transform.__name__}(...); got the class. "
            f"Draw one with {transform.__name__}.sample(weight, data, generator=...)."
        )
    subject = as_layer(layer)
    check_arrays(weight, data)
    return relative_change(evaluate(subject, weight, data), evaluate(subject, *act(transform, weight, data)))


def assert_invariant(layer: Any, transform: Any, **options: Any) -> Verdict:
    """Raise an error with the evidence unless the layer is invariant, exactly or up to its eps.

    Args:
        layer: a norm, a module on the summed inputs, or a function of (weight, data).
        transform: an action's class, or one element.
        options: those of `check`.

    Raises:
        AssertionError: with the verdict: its numbers, its witness, and what is to blame.

    >>> import normgeom as ng
    >>> print(ng.assert_invariant(ng.BatchNorm(), ng.DatasetRecenter, engines=["symbolic"]).kind)
    invariant
    """
    (verdict,) = check(layer, (transform,), **options)
    if not verdict.holds:
        raise AssertionError(f"an invariance was claimed that does not hold.\n{verdict}")
    return verdict
