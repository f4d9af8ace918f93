"""Running a graph on exact numbers."""

import decimal
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from normgeom.invariance.graph.digits import NoValue, objects
from normgeom.invariance.graph.exported import Graph, NoGraph, describe, operator
from normgeom.invariance.graph.rules import RULES

FAILED = (AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)


def evaluate(
    graph: Graph,
    arithmetic: Any,
    weight: np.ndarray,
    data: np.ndarray,
    *,
    constants: Mapping[fx.Node, Any] | None = None,
) -> np.ndarray:
    """Return the outputs of a graph as an array of exact numbers.

    Args:
        graph: an exported layer.
        arithmetic: how numbers are made and what functions of them are.
        weight: numbers of the arithmetic, of the shape the graph was exported for.
        data: likewise.
        constants: for some nodes, what stands in the place of their second argument.

    Raises:
        NoGraph: at an operator without a rule, with its place.
        NoValue: where a function has no real value at this point.
    """
    refuse_unknown(graph)
    values: dict[fx.Node, Any] = {}
    for node in graph.needed:
        if node in graph.inputs:
            held = graph.inputs[node]
            values[node] = (
                {"weight": weight, "data": data}[held] if isinstance(held, str) else _held(held, arithmetic)
            )
        else:
            values[node] = _called(node, values, arithmetic, constants or {})
    return objects(values[graph.output])


def refuse_unknown(graph: Graph) -> None:
    """Raise NoGraph for the operators that have no rule, with their places."""
    calls = [node for node in graph.needed if node not in graph.inputs]
    if unknown := [node for node in calls if operator(node) not in RULES]:
        named = "; ".join(dict.fromkeys(describe(node) for node in unknown))
        raise NoGraph(f"there is no rule for {named}")


def _called(
    node: fx.Node, values: dict[fx.Node, Any], arithmetic: Any, constants: Mapping[fx.Node, Any]
) -> Any:
    """Apply the rule of one node."""
    arguments, options = pytree.tree_map_only(fx.Node, values.__getitem__, (node.args, dict(node.kwargs)))
    if node in constants:
        arguments = (arguments[0], objects(arithmetic.constant(constants[node])), *arguments[2:])
    try:
        result = RULES[operator(node)](arithmetic, *arguments, **options)
    except decimal.InvalidOperation as why:
        raise NoValue(f"{describe(node)} of infinite numbers") from why
    except FAILED as why:
        raise NoGraph(f"the rule for {describe(node)} does not take these arguments: {why}") from why
    return [objects(part) for part in result] if isinstance(result, tuple | list) else objects(result)


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
