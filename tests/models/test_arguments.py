"""What cells and layers refuse, in words; and what they take."""

import math

import numpy as np
import pytest
import torch

import normgeom as ng
from tests.models.cores import P, draw


def test_the_other_device_is_named():
    model, x = ng.LNLSTM(5, 6), torch.ones(7, 3, 5)
    with pytest.raises(ValueError, match="input must be on the device of the weights, cpu; got meta"):
        model(x.to("meta"))
    with pytest.raises(ValueError, match="h must be on the device of the weights, cpu; got meta"):
        model(x, (torch.zeros(1, 3, 6, device="meta"),) * 2)
    with pytest.raises(ValueError, match="input must be on the device of the weights, cpu; got meta"):
        model.layer0(x[0].to("meta"))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"dropout": "half"}, ValueError, "dropout must be a probability from 0 to 1; got 'half'"),
        ({"eps": None}, ValueError, "eps must be a finite number of at least 0; got None"),
        ({"initial_gain": "1"}, ValueError, "initial_gain must be a finite number; got '1'"),
        ({"dtype": torch.int64}, TypeError, r"real floating-point numbers; got torch\.int64"),
        ({"dtype": torch.complex64}, TypeError, r"real floating-point numbers; got torch\.complex64"),
    ],
    ids=str,
)
def test_options_that_are_no_numbers(options, kind, message):
    with pytest.raises(kind, match=message):
        ng.LNLSTM(5, 6, **options)


def test_sizes_may_be_any_integers():
    model = ng.LNLSTM(np.int64(3), torch.tensor(4), np.int8(2))
    assert repr(model) == repr(ng.LNLSTM(3, 4, 2))
    assert all(type(n) is int for n in (model.input_size, model.hidden_size, model.layer0.input_size))


def test_autocast_takes_any_type_of_features():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = ng.LNLSTM(3, 4)(torch.zeros(7, 5, 3, dtype=torch.bfloat16))[0]
    assert outputs.isfinite().all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ng.LNLSTM(0, 4), "input_size must be an integer of at least 1; got 0"),
        (lambda: ng.LNGRUCell(3, -1), "hidden_size must be an integer of at least 1; got -1"),
        (lambda: ng.LNLSTM(3, 4, num_layers=0), "num_layers must be an integer"),
        (lambda: ng.LNLSTM(3, 4, dropout=2.0), "dropout must be a probability from 0 to 1; got 2.0"),
        (lambda: ng.LNLSTM(3, 4, eps=-1.0), "eps must be a finite number of at least 0; got -1.0"),
        (lambda: ng.LNLSTM(3, 4, initial_gain=math.nan), "initial_gain must be a finite number; got nan"),
        (lambda: ng.LNGRUCell(3, 4, initial_bias=math.inf), "initial_bias must be a finite number; got inf"),
        (lambda: ng.LNLSTM(3.0, 4), "input_size must be an integer of at least 1; got 3.0"),
        (lambda: ng.LNLSTM(True, 4), "input_size must be an integer of at least 1; got True"),
        (lambda: ng.LNRNN(3, 4, placement=P()), "LNRNNCell has no cell state to normalize"),
        (lambda: P(False, True, joint=True), "joint statistics are those of W_h h"),
        (lambda: P(False, False, per_gate=True), "needs a norm at the gates"),
        (lambda: P(input=2), "input must be True or False; got 2"),
        (
            lambda: ng.LNLSTM(3, 4)(draw(7, 5, 2)),
            r"the last axis of the input must have size 3; got \(7, 5, 2\)",
        ),
        (lambda: ng.LNLSTM(3, 4)(draw(0, 5, 3)), "at least one step and case"),
        (
            lambda: ng.LNGRU(3, 4)(draw(7, 5, 3), draw(2, 5, 4)),
            r"h must have shape \(1, 5, 4\); got \(2, 5, 4\)",
        ),
        (lambda: ng.LNLSTM(3, 4)(torch.tensor([[0, 3]])), "ids must be from 0 to 2; got 0 to 3"),
        (lambda: ng.LNLSTMCell(3, 4)(draw(2, 5, 3)), "one step takes cases along one axis at most"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: ng.LNLSTM(3, 4)(draw(7, 5, 3), draw(1, 5, 4)),
            r"the state must be a pair \(h, c\); got Tensor",
        ),
        (
            lambda: ng.LNLSTM(3, 4)(draw(7, 5, 3)),
            r"input must have the dtype of the weights, torch\.float32; got torch\.float64\. "
            r"Convert it with \.to\(torch\.float32\), or the module with \.to\(torch\.float64\)",
        ),
        (
            lambda: ng.LNGRU(3, 4)(torch.zeros(7, 5, 3), draw(1, 5, 4)),
            r"h must have the dtype of the weights, torch\.float32; got torch\.float64",
        ),
        (lambda: ng.LNLSTMCell(3, 4)(draw(5, 3)), "input must have the dtype of the weights"),
        (
            lambda: ng.LNLSTMCell(3, 4)(torch.zeros(5, 3), (torch.zeros(5, 4), draw(5, 4))),
            "c must have the dtype of the weights",
        ),
        (lambda: ng.LNLSTM(3, 4)([1.0]), "the input must be a tensor; got list"),
        (lambda: ng.LNLSTM(3, 4)(torch.ones(7, 5, 3, dtype=torch.bool)), "real features or of integer ids"),
        (lambda: ng.LNLSTM(3, 4, placement="input"), "placement must be a Placement; got 'input'"),
    ],
)
def test_wrong_types_are_named(wrong, message):
    with pytest.raises(TypeError, match=message):
        wrong()
