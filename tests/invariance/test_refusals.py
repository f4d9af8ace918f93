"""Layers and arguments that cannot be checked: each refusal is one line that says why."""

import pytest
import torch
from torch import nn

import normgeom as ng


@pytest.mark.parametrize("sizes", [{"units": 1}, {"units": 2}, {"cases": 2}, {"inputs": 1}])
def test_sizes_that_decide_nothing(sizes):
    """NUM-06: with one unit layer norm is constant, with two only a sign."""
    with pytest.raises(ValueError, match=r"a check needs at least \d"):
        ng.check(ng.LayerNorm(), **sizes)


def in_place(weight, data):
    return (data.mul_(2)) @ weight.T


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (in_place, ValueError, "in_place changes its weight or data in place"),
        (
            lambda w, x: (x @ w.T).sum(),
            ValueError,
            r"must return one row for each of the 6 cases; got shape \(\)",
        ),
        (lambda w, x: 3, TypeError, "must return a floating-point tensor; got int"),
    ],
)
def test_impossible_outputs(layer, error, message, unchecked):
    with pytest.raises(error, match=message):
        ng.check(layer)


GOOD = torch.ones(3, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weight": GOOD * torch.nan}, ValueError, r"weight must be finite; got 6 .* first nan at \(0, 0\)"),
        ({"data": GOOD / 0}, ValueError, "data must be finite"),
        ({"weight": GOOD.int()}, TypeError, "weight must be a floating-point torch tensor; got torch.int32"),
        ({"weight": GOOD[0]}, ValueError, r"weight must be \(units, inputs\); got shape \(2,\)"),
        ({"weight": GOOD, "data": GOOD.T}, ValueError, "must have the same number of inputs"),
        ({"weight": GOOD, "units": 4}, ValueError, "units=4 was asked for, but the arrays given have 3"),
        ({"weight": GOOD[:2]}, ValueError, "at least 3 units; got 2"),
        ({"data": GOOD[:2]}, ValueError, "at least 3 cases; got 2"),
        ({"engines": ["magic"]}, ValueError, "engines must be among numeric, exact, symbolic, .*; got magic"),
        ({"engines": []}, ValueError, "at least one engine"),
        ({"eps": -1.0}, ValueError, "eps must be a finite number >= 0"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_any_work(options, error, message, unchecked):
    with pytest.raises(error, match=message):
        ng.check(ng.LayerNorm(), **options)


def test_a_module_says_how_many_units_it_takes(generator):
    gated = nn.Sequential(nn.Linear(7, 4), nn.BatchNorm1d(4))
    assert (ng.as_layer(gated).units, ng.on_summed_inputs(gated).units) == (4, 7)
    scale = torch.nn.Parameter(torch.ones(7))
    with pytest.raises(ValueError, match=r"must take a weight and data of shapes \(5, 4\) .* pass units="):
        ng.check(lambda w, x: x @ w.T * scale)
    assert len(ng.check(lambda w, x: x @ w.T * scale, units=7)) == 6


class Refuses(torch.nn.Module):
    """A module that takes no arguments of any shape, each time by another error."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, summed):
        raise self.error


@pytest.mark.parametrize(
    "error",
    [IndexError("a b\nc"), ValueError("a b"), TypeError("a b"), KeyError("a b"), ZeroDivisionError("a b")],
)
def test_an_error_of_the_layer_s_code_is_one_line(error):
    said = (
        r"^Refuses must take a weight and data of shapes \(7, 4\) and \(6, 4\), so summed inputs of shape "
        rf"\(6, 7\); it raised {type(error).__name__}: '?a b'?\. If .* nn.Sequential\(nn.Conv2d\(...\), Ref"
    )
    with pytest.raises(ValueError, match=said) as raised:
        ng.check(Refuses(error), units=7)
    assert len(str(raised.value).splitlines()) == 1
    assert all(v.kind is ng.Kind.UNDECIDED for v in ng.check(Refuses(error), engines=["graph", "abstract"]))


def test_a_layer_with_its_own_size():
    with pytest.raises(ValueError, match="units must be one number; the call is for 7 and LayerNorm for 5"):
        ng.check(nn.LayerNorm(5), units=7)
