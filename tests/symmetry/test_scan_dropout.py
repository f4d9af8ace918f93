"""A map of a model that drops: said so, and true of every mask, not of one that leaves a row whole."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import normgeom as ng
from tests.symmetry.scanned import BATCH, Fn, seeded

TOKENS = torch.arange(30).reshape(5, 6)


def scanned(make):
    """A map, and the moves that the embedding allows token by token."""
    found = seeded(lambda: ng.scan(make(), TOKENS))
    return found, [part.move for part in found["0.weight"].parts if part.kind == "token"]


def embedding(share):
    return lambda: nn.Sequential(nn.Embedding(30, 3), nn.Dropout(share), nn.LayerNorm(3))


def test_a_shift_of_tokens_that_one_mask_left_whole_is_not_claimed():
    """Of 30 tokens, some 22 have none of their 3 coordinates dropped at a mask with p = 0.1."""
    whole, _ = scanned(embedding(0.0))
    assert whole["0.weight"].moves[ng.Move.SHIFT_UNITS].holds
    assert "dropout" not in repr(whole)
    found, moves = scanned(embedding(0.1))
    assert not found["0.weight"].moves[ng.Move.SHIFT_UNITS].holds
    assert moves == [ng.Move.SCALE]
    assert "! dropout is active (1 modules, p > 0): the map is of the function with one" in repr(found)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: nn.Dropout(0.5), "dropout is active (1 modules, p > 0)"),
        (lambda: Fn(lambda a: functional.dropout(a, 0.5)), "the model draws random numbers"),
        (lambda: nn.Dropout(0.5).eval(), None),
        (lambda: nn.Dropout(0.0), None),
    ],
)
def test_what_is_random_is_said(make, what):
    found = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6), make(), nn.Linear(6, 2))), BATCH)
    assert [one.partition(":")[0] for one in found.findings] == ([] if what is None else [what])
