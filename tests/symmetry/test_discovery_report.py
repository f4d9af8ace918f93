"""What `discover` prints, and what it refuses."""

import pytest
import torch
from torch import nn

import normgeom as ng
from tests.symmetry import discoverable as layers


def test_the_table():
    text = repr(ng.discover(ng.as_layer(ng.LayerNorm(), eps=1e-5)))
    assert text.startswith("LayerNorm: 40 affine symmetries of W (4, 3), p = 12\n")
    assert "3 × 13 = 39" in text
    assert "with own eps" in text
    assert text.endswith("eps = 1e-05 was taken away")


def test_latex_and_plain_values():
    found = ng.discover(ng.LayerNorm(), inputs=2)
    assert r"$W \to W + 1\gamma^\top$ & $2 \times 9 = 18$" in found.to_latex()
    values = found.to_dict()
    assert [row["multiplicity"] for row in values["generators"]] == [18, 1]
    assert len(found) == 2
    with pytest.raises(KeyError, match="there are re-centering, whole scale"):
        found["rotation"]


ERRORS = {
    "too many": (ng.LayerNorm(), {"units": 7, "inputs": 7}, ValueError, "has 49: W .7, 7.*give units="),
    "too few units": (ng.LayerNorm(), {"units": 2}, ValueError, "at least 3 units"),
    "no layer": (3, {}, TypeError, "a layer must be"),
    "no function": (nn.LayerNorm(3), {"parameters": {"w": torch.zeros(3)}}, TypeError, "functional_call"),
    "no tensors": (layers.dyt, {"parameters": {"w": (3,)}}, TypeError, "dict from names to tensors"),
    "no parameters": (layers.dyt, {"parameters": {}}, ValueError, "takes 1 to 40 parameters"),
    "units": (layers.dyt, {"parameters": {"w": torch.zeros(3)}, "units": 3}, TypeError, "their shapes do"),
    "data_shape alone": (ng.LayerNorm(), {"data_shape": (3, 3)}, TypeError, "goes with parameters"),
    "both": (
        layers.dyt,
        {"parameters": {"w": torch.zeros(3)}, "inputs": 3, "data_shape": (3, 3)},
        TypeError,
        "not both",
    ),
    "no case": (layers.dyt, {"parameters": {"w": torch.zeros(3)}, "cases": -1}, ValueError, "one case and"),
    "not finite": (lambda w, x: x @ w.T / 0, {}, ValueError, "must have finite outputs"),
    "no tensor": (lambda w, x: 1.0, {}, TypeError, "floating-point tensor; got float"),
    "whole numbers": (lambda w, x: (x @ w.T).long(), {}, TypeError, "got torch.int64"),
    "no derivative": (lambda w, x: x @ w.T + (w - w).sum().sqrt(), {}, ValueError, "finite derivative"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, unchecked):
    layer, options, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        ng.discover(layer, **options)
