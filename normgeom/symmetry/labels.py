"""Reads the label of a block, which is in Python's index notation."""

from torch import Tensor


def stretch_of(tensor: Tensor, label: str) -> Tensor:
    """Return the part of a parameter that a label names, as a view.

    >>> import torch
    >>> stretch_of(torch.arange(12).reshape(3, 4), "qkv.weight[:, 0:2]").tolist()
    [[0, 1], [4, 5], [8, 9]]
    """
    _, bracket, index = label.rstrip("]").partition("[")
    if not bracket:
        return tensor
    return tensor[tuple(_index(span) for span in index.split(", "))]


def _index(span: str) -> int | slice:
    edges = [int(edge) for edge in span.split(":") if edge]
    if ":" not in span:
        return edges[0]
    return slice(*edges) if edges else slice(None)
