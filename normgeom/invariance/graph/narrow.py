"""Casts to half types, which exact numbers and rules pass over without rounding."""

import dataclasses

import torch

from normgeom.invariance.graph.exported import Graph, NoGraph, place
from normgeom.invariance.verdict import Kind, Verdict

HALF = (torch.float16, torch.bfloat16)


def without_rounding(verdict: Verdict, graph: Graph | NoGraph | None) -> Verdict:
    """Return a graph engine's verdict, undecided if it holds but for the rounding of a half type."""
    cast = _narrow_cast(graph) if isinstance(graph, Graph) and verdict.holds else ""
    if not cast:
        return verdict
    engine = ", ".join(verdict.engines)
    reason = f"{engine}: holds without rounding, but there is a {cast}, which this engine does not round by"
    return dataclasses.replace(
        verdict, kind=Kind.UNDECIDED, reason=reason, proof=None, tolerance=None, error=None
    )


def _narrow_cast(graph: Graph) -> str:
    """The first cast to a half type with its place, or an empty string."""
    for node in graph.needed:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype in HALF and node not in graph.inputs:
            return f"narrow cast to {str(value.dtype).removeprefix('torch.')} at {place(node)}"
    return ""
