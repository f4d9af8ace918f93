"""Modules that own their weight, re-parametrized or not."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import normgeom as ng
from tests.layers.modules import OwnMatrix, Standardized

YES, NO = True, False


BATCH = (YES, NO, YES, YES, YES, NO)


LENGTH = (YES, NO, YES, NO, NO, NO)


WHOLE = (YES, NO, NO, NO, NO, NO)


def random_state(module):
    return {k: v.clone() for k, v in module.state_dict().items()}, torch.get_rng_state()


def old_style(make, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*args)


def standardized():
    linear = nn.Linear(4, 5)
    parametrize.register_parametrization(linear, "weight", Standardized())
    return linear


def convolved(norm, *args, **options):
    return lambda: nn.Sequential(nn.Conv2d(4, 6, 3, *args, **options), norm)


OWNING = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5)), (NO, YES, NO, NO, NO, NO)),
    "no bias": (lambda: nn.Sequential(nn.Linear(4, 5, False), nn.LayerNorm(5)), (YES, YES, NO, YES, NO, YES)),
    "conv": (convolved(nn.BatchNorm2d(6)), BATCH),
    "padded conv": (convolved(nn.BatchNorm2d(6), padding=1), (YES, NO, YES, YES, NO, NO)),
    "grouped conv": (convolved(nn.BatchNorm2d(6), groups=2), BATCH),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(4, 5)), LENGTH),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(4, 5)).eval(), WHOLE),
    "standardized": (standardized, LENGTH),
    "old weight norm": (lambda: old_style(nn.utils.weight_norm, nn.Linear(4, 5)), LENGTH),
    "old spectral norm": (lambda: old_style(nn.utils.spectral_norm, nn.Linear(4, 5)).eval(), WHOLE),
}


@pytest.mark.parametrize("name", OWNING)
def test_a_module_that_owns_its_weight(name):
    make, holds = OWNING[name]
    module = make()
    before, random = random_state(module)
    assert ng.check(module, engines=["numeric"]).holds == holds
    after, random_after = random_state(module)
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert torch.equal(random, random_after)


@pytest.mark.parametrize("name", OWNING)
def test_a_module_that_owns_its_weight_gives_its_own_outputs(name):
    module = OWNING[name][0]().double()
    layer = ng.as_layer(module)
    own = dict(module.named_parameters())[layer.own.name]
    data = torch.randn(3, *layer.convolution.shapes(layer.units, layer.inputs, 3)[1][1:]).double()
    torch.testing.assert_close(layer(own, data), module(data))


@pytest.mark.parametrize(
    ("make", "dim", "holds"),
    [(nn.Conv2d, 0, YES), (nn.ConvTranspose2d, 0, NO), (nn.ConvTranspose2d, 1, YES), (nn.Conv2d, None, NO)],
)
def test_weight_norm_normalizes_units_only_along_their_axis(make, dim, holds):
    """WGT-03: dim=0 is the input channel of a transposed convolution; None normalizes the whole tensor."""
    module = parametrizations.weight_norm(make(3, 4, 3), dim=dim)
    assert ng.check(module, [ng.WeightVectorRescale], engines=["numeric"])[0].holds == holds
    assert ng.check(module, [ng.WeightMatrixRescale], engines=["numeric"])[0].holds


def test_spectral_norm_in_training_is_stateful():
    """WGT-05: two equal calls differ, so nothing is decided until it is frozen."""
    (verdict,) = ng.check(
        parametrizations.spectral_norm(nn.Linear(4, 5)), [ng.WeightMatrixRescale], engines=["numeric"]
    )
    assert verdict.kind is ng.Kind.UNDECIDED
    assert "depend on the buffers" in verdict.reason


def test_the_raw_and_the_effective_weight_are_told_apart():
    module = parametrizations.weight_norm(nn.Linear(4, 5, bias=False))
    effective = ng.owning_weight(module, raw=False)
    length = ng.owning_weight(module, weight="parametrizations.weight.original0")
    assert ng.owning_weight(module, weight="weight").own.name == "parametrizations.weight.original1"
    for layer in (effective, length):
        assert ng.check(layer, [ng.WeightVectorRescale], engines=["numeric"])[0].degree == 1
        assert ng.check(layer, [ng.WeightMatrixRescale], engines=["numeric"])[0].degree == 1
    assert parametrize.is_parametrized(module, "weight")
    assert module.weight.shape == (5, 4)


def test_a_weight_that_a_module_keeps_itself_is_named():
    assert ng.check(ng.owning_weight(OwnMatrix(), weight="weight"), engines=["numeric"]).holds == (
        YES, YES, NO, YES, NO, YES,
    )  # fmt: skip


def test_a_norm_before_the_weight_is_named():
    module = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 5, bias=False))
    assert ng.check(ng.owning_weight(module), engines=["numeric"]).holds == (NO, NO, NO, YES, NO, YES)
    assert ng.check(module, engines=["numeric"]).holds == (YES, YES, NO, YES, NO, YES)
