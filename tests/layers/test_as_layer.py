import pytest
import torch
from torch import nn

import normgeom as ng
from normgeom.variants import variant


def snapshot(module):
    return {k: v.clone() for k, v in module.state_dict().items()}, module.training, torch.get_rng_state()


@pytest.mark.parametrize("module", [nn.LayerNorm(5), nn.BatchNorm1d(5), nn.GroupNorm(1, 5), nn.Dropout(0.5)])
def test_a_module_is_left_as_found(module, point):
    before = snapshot(module)
    ng.check(module, [ng.WeightMatrixRescale], units=5)
    state, training, random = snapshot(module)
    assert all(torch.equal(v, before[0][k]) for k, v in state.items())
    assert training == before[1]
    assert torch.equal(random, before[2])
    assert all(p.grad is None for p in module.parameters())


def test_a_module_acts_on_the_summed_inputs(point):
    module = nn.LayerNorm(5, dtype=torch.float64)
    torch.testing.assert_close(ng.as_layer(module)(*point), module(point[1] @ point[0].T))


def test_gain_and_bias_follow_the_normalization(point):
    gain, bias = torch.tensor([1.0, -2.0, 0.5, 3.0, 1.0]), torch.arange(5.0)
    layer = ng.as_layer(ng.LayerNorm(), gain=gain, bias=bias)
    torch.testing.assert_close(layer(*point), gain * ng.normalize(ng.LayerNorm(), *point) + bias)
    assert layer.units == 5


def test_a_class_of_norm_stands_for_its_default():
    assert ng.as_layer(ng.RMSNorm, eps=1e-6).eps == 1e-6


@pytest.mark.parametrize(
    "layer", [ng.RMSNorm(), nn.LayerNorm(4), lambda w, x: x @ w.T, variant("layer norm")]
)
def test_every_kind_of_layer_takes_a_name(layer):
    assert ng.as_layer(ng.as_layer(layer), name="mine").name == "mine"


def test_frozen_batch_norm_is_batch_norm_at_its_own_point(point):
    frozen = ng.frozen_batch_norm(*point, eps=1e-3, bias_before=0.5)
    torch.testing.assert_close(frozen(*point), ng.as_layer(ng.BatchNorm(), eps=1e-3)(*point))
    assert (frozen.mode, ng.as_layer(ng.BatchNorm()).mode) == ("eval", "train")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ng.as_layer(3), TypeError, "a layer must be a norm .* got 3"),
        (
            lambda: ng.as_layer(lambda width: nn.LayerNorm(width)),
            TypeError,
            r"a function of \(weight, data\); got <lambda>\(width\). If it makes the layer, give",
        ),
        (
            lambda: ng.as_layer(nn.LayerNorm(4), gain=2.0),
            TypeError,
            "gain, bias and bias_before apply to a norm",
        ),
        (
            lambda: ng.as_layer(lambda w, x: x, eps=1e-5),
            TypeError,
            "eps inside a plain function cannot be set",
        ),
        (
            lambda: ng.as_layer(ng.InputLayerNorm(), bias_before=1.0),
            ValueError,
            "must accept a third argument",
        ),
    ],
)
def test_impossible_layers(make, error, message):
    with pytest.raises(error, match=message):
        make()
