"""Running a graph on exact numbers."""

import decimal
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from normgeom.invariance.graph.digits import Digits, NoValue, objects
from normgeom.invariance.graph.exported import Graph, NoGraph, ancestors, describe, operator
from normgeom.invariance.graph.rules import RULES

Constants = Mapping[tuple[fx.Node, int], torch.Tensor]
FAILED = (AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)


def evaluate(
    graph: Graph,
    arithmetic: Any,
    weight: np.ndarray,
    data: np.ndarray,
    *,
    constants: Constants | None = None,
    known: Mapping[fx.Node, np.ndarray] | None = None,
) -> np.ndarray:
    """Return the outputs of a graph as an array of exact numbers.

    Args:
        graph: an exported layer.
        arithmetic: how numbers are made and what functions of them are.
        weight: numbers of the arithmetic, of the shape the graph was exported for.
        data: likewise.
        constants: what stands in the place of some operands, by node and number of the argument.
        known: the values of some nodes; what those alone depend on is not evaluated.

    Raises:
        NoGraph: at an operator without a rule, with its place.
        NoValue: where a function has no real value at this point.
    """
    refuse_unknown(graph)
    kept = graph.found.setdefault("held", {}) if isinstance(arithmetic, Digits) else {}
    values: dict[fx.Node, Any] = dict(known or {})
    before = {source for node in values for source in ancestors(node)}
    for node in graph.needed:
        if node in before:
            continue
        if node in graph.inputs:
            held = graph.inputs[node]
            if not isinstance(held, str) and node not in kept:
                kept[node] = _held(held, arithmetic)
            values[node] = {"weight": weight, "data": data}[held] if isinstance(held, str) else kept[node]
        else:
            values[node] = _called(node, values, arithmetic, constants or {})
    return objects(values[graph.output])


def refuse_unknown(graph: Graph) -> None:
    """Raise NoGraph for the operators that have no rule, with their places."""
    calls = [node for node in graph.needed if node not in graph.inputs]
    if unknown := [node for node in calls if operator(node) not in RULES]:
        named = "; ".join(dict.fromkeys(describe(node) for node in unknown))
        raise NoGraph(f"there is no rule for {named}")


def _called(node: fx.Node, values: dict[fx.Node, Any], arithmetic: Any, constants: Constants) -> Any:
    """Apply the rule of one node."""
    arguments, options = pytree.tree_map_only(fx.Node, values.__getitem__, (node.args, dict(node.kwargs)))
    arguments = tuple(
        _written(constants[node, k], arithmetic) if (node, k) in constants else argument
        for k, argument in enumerate(arguments)
    )
    try:
        result = RULES[operator(node)](arithmetic, *arguments, **options)
    except decimal.InvalidOperation as why:
        raise NoValue(f"{describe(node)} of infinite numbers") from why
    except FAILED as why:
        raise NoGraph(f"the rule for {describe(node)} does not take these arguments: {why}") from why
    return [objects(part) for part in result] if isinstance(result, tuple | list) else objects(result)


def _written(value: torch.Tensor, arithmetic: Any) -> np.ndarray:
    """Constants of the code as exact numbers, each as it is written."""
    return objects(np.frompyfunc(lambda v: arithmetic.constant(float(v)), 1, 1)(value.numpy()))


def _held(value: Any, arithmetic: Any) -> np.ndarray:
    """A parameter or buffer as exact numbers."""
    array = value.detach().cpu().double().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return objects(np.frompyfunc(lambda v: arithmetic.number(float(v)), 1, 1)(array))


def size(graph: Graph) -> int:
    """Return about how many operations on numbers one evaluation takes."""
    total = 0
    for node in graph.needed:
        value = node.meta.get("val")
        entries = value.numel() if isinstance(value, torch.Tensor) else 0
        depth = 1
        if operator(node) in ("aten.mm", "aten.bmm", "aten.addmm"):
            depth = int(node.all_input_nodes[-1].meta["val"].shape[-2])
        if operator(node) == "aten.convolution":
            depth = int(node.all_input_nodes[1].meta["val"][0].numel())
        total += entries * depth
    return total
