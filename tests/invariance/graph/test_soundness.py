"""Layers at which abstract interpretation could go wrong: it must never call invariant what is not."""

import pytest
import torch
import torch.nn.functional as F

import normgeom as ng
from normgeom.invariance import graph
from tests.invariance.graph.layers import ACTIONS, exported, verdicts


def centred(summed, dim=0):
    return (summed - summed.mean(dim, keepdim=True)) / summed.std(dim, keepdim=True)


def convolutions(weight, data):
    """Two convolutions of one shape: their shifts by padding differ."""
    return F.conv2d(data, weight, padding=1) - F.conv2d(data, weight, padding=2, dilation=2)


CASES = {
    "a maximum with a constant, then batch norm": lambda w, x: centred(
        torch.maximum(x @ w.T, torch.tensor(0.3))
    ),
    "a choice of a constant, then batch norm": lambda w, x: centred(torch.where(x @ w.T > 0, x @ w.T, 0.3)),
    "a clamp from above": lambda w, x: centred(torch.clamp(x @ w.T, max=0.5)),
    "a bias of each case, then batch norm": lambda w, x: centred(x @ w.T + torch.arange(6.0)[:, None]),
    "a bias before the norm of units": lambda w, x: centred(x @ w.T + torch.arange(5.0), 1),
    "a detached statistic": lambda w, x: x @ w.T / (x @ w.T).detach().norm(dim=1, keepdim=True),
    "a mean of other cases": lambda w, x: centred(x @ w.T, 1) + centred((x @ w.T).flip(0), 1),
    "the difference of two norms": lambda w, x: centred(x @ w.T, 0) - centred(x @ w.T, 1),
    "half of the units": lambda w, x: torch.cat([centred((x @ w.T)[:, :3], 1), (x @ w.T)[:, 3:]], 1),
    "a view that mixes cases": lambda w, x: centred((x @ w.T).reshape(5, 6), 1).reshape(6, 5),
    "a product of two scales": lambda w, x: (x @ w.T) * (w.norm(dim=1) / x.norm(dim=1, keepdim=True)),
    "one over the first unit": lambda w, x: (x @ w.T) / (x @ w.T)[:, :1],
    "logarithms": lambda w, x: torch.log((x @ w.T).abs()) - torch.log((x @ w.T).abs()).mean(1, keepdim=True),
    "a product with its own transpose": lambda w, x: torch.softmax((x @ w.T) @ (x @ w.T).T, 1),
    "cubes": lambda w, x: (x @ w.T) ** 3 / ((x @ w.T) ** 2).mean(1, keepdim=True).pow(1.5),
}


@pytest.mark.parametrize("name", CASES)
def test_it_never_calls_invariant_what_is_not(name):
    layer, seen = exported(CASES[name])
    pairs = zip(
        verdicts(graph.judge_abstractly, layer, seen), verdicts(graph.judge, layer, seen), strict=True
    )
    for found, exact in pairs:
        assert found.kind in (ng.Kind.UNDECIDED, exact.kind)


def test_two_convolutions_of_one_shape_have_two_shifts():
    layer, seen = exported(ng.function_layer(convolutions, kernel=(3, 3)))
    for found in verdicts(graph.judge_abstractly, layer, seen, [ng.DatasetRecenter, ng.DatasetShift]):
        assert found.kind is ng.Kind.UNDECIDED
    for found in verdicts(graph.judge, layer, seen, [ng.DatasetRecenter, ng.DatasetShift]):
        assert found.kind is ng.Kind.NOT_INVARIANT


@pytest.mark.parametrize("name", ["a detached statistic", "one over the first unit", "cubes", "logarithms"])
def test_it_finds_something_all_the_same(name):
    layer, seen = exported(CASES[name])
    assert any(found.holds for found in verdicts(graph.judge_abstractly, layer, seen, ACTIONS))
