"""Layers made by a constructor: on summed inputs, with a new weight, of a function; and what none takes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgeom as ng
from tests.layers.modules import OwnMatrix, Standardized

YES, NO = True, False


def test_weight_standardization_with_fan_in_one_is_degenerate():
    """WGT-07: the weight is identically 0 or 0/0."""
    layer = ng.reparametrized(lambda w: (w - w.mean(1, keepdim=True)) / torch.std(w, 1, keepdim=True))
    with pytest.raises(ValueError, match="at least 2 inputs"):
        ng.check(layer, inputs=1)


def test_a_reparametrization_sums_with_the_new_weight():
    """WGT-08: fan-in is the product of the axes after the first of (out, in, kh, kw)."""

    def standardized(weight):
        flat = weight.flatten(1)
        centred = flat - flat.mean(1, keepdim=True)
        variance = centred.square().mean(1, keepdim=True)
        return (centred / (variance * weight[0].numel()).sqrt()).reshape(weight.shape)

    layer = ng.reparametrized(standardized, kernel=(3, 3), padding=1)
    weight, data = torch.randn(16, 3, 3, 3), torch.randn(2, 3, 5, 5)
    torch.testing.assert_close(layer(weight, data), F.conv2d(data, standardized(weight), padding=1))
    assert standardized(weight).square().sum((1, 2, 3)) == pytest.approx(torch.ones(16))
    assert ng.check(layer, engines=["numeric"]).holds == (YES, NO, YES, NO, NO, NO)


def test_a_reparametrization_by_a_module_has_its_eps():
    class Standardize(Standardized):
        eps = 1e-3

        def forward(self, weight):
            return F.layer_norm(weight, weight.shape[1:], eps=self.eps)

    (verdict,) = ng.check(ng.reparametrized(Standardize()), [ng.WeightVectorRescale], engines=["numeric"])
    assert verdict.kind is ng.Kind.UP_TO_EPS


ON_SUMS = {
    "BatchNorm2d": (lambda: nn.BatchNorm2d(5), (YES, NO, YES, YES, YES, NO, NO)),
    "BatchNorm2d eval": (lambda: nn.BatchNorm2d(5).eval(), (NO,) * 7),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(3), (YES, NO, YES, YES, YES, NO, NO)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(5), (YES, NO, YES, YES, YES, YES, NO)),
    "LayerNorm [C,H,W]": (lambda: nn.LayerNorm([5, 3, 3]), (YES, NO, NO, YES, NO, YES, NO)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (NO,) * 7),
    "GroupNorm": (lambda: nn.GroupNorm(2, 6), (YES, YES, NO, YES, NO, YES, NO)),
}


@pytest.mark.parametrize("name", ON_SUMS)
def test_a_module_on_summed_inputs(name):
    make, holds = ON_SUMS[name]
    assert ng.check(make(), [*ng.TABLE_1, ng.DatasetShift], engines=["numeric"]).holds == holds


def test_padding_breaks_a_constant_shift():
    for padding, holds in ((0, YES), (1, NO)):
        layer = ng.on_summed_inputs(nn.BatchNorm2d(5), padding=padding)
        assert ng.check(layer, [ng.DatasetRecenter], engines=["numeric"])[0].holds == holds


def test_one_group_is_not_the_layer_norm_of_channels():
    """SEM-04: GroupNorm(1, C) is LayerNorm([C, H, W]); per pixel over channels, re-centering holds too."""

    def per_pixel(weight, data):
        summed = F.conv2d(data, weight).movedim(1, -1)
        return F.layer_norm(summed, summed.shape[-1:], eps=0.0).movedim(-1, 1)

    pixels = ng.function_layer(per_pixel, kernel=(2, 2))
    group = ng.on_summed_inputs(nn.GroupNorm(1, 5), kernel=(2, 2))
    assert ng.check(pixels, [ng.WeightMatrixRecenter], engines=["numeric"])[0].holds
    assert not ng.check(group, [ng.WeightMatrixRecenter], engines=["numeric"])[0].holds
    weight, data = torch.randn(5, 4, 2, 2), torch.randn(6, 4, 4, 4)
    torch.testing.assert_close(group(weight, data), ng.as_layer(nn.LayerNorm([5, 3, 3]))(weight, data))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ng.as_layer(nn.SyncBatchNorm(5)), ValueError, "SyncBatchNorm takes its statistics over the"),
        (lambda: ng.as_layer(nn.LazyBatchNorm1d()), ValueError, "must have its sizes; call the module once"),
        (lambda: ng.owning_weight(nn.LayerNorm(5)), ValueError, "must own a linear or convolutional weight"),
        (lambda: ng.owning_weight(nn.Linear(4, 5), weight="w"), ValueError, "parameters: weight; got 'w'"),
        (lambda: ng.owning_weight(nn.Linear(4, 5), raw=False), ValueError, "needs a parametrized weight"),
        (lambda: ng.owning_weight(nn.ConvTranspose1d(4, 4, 3, groups=2)), ValueError, "must have groups=1"),
        (lambda: ng.owning_weight(nn.Linear(4, 5), spatial=(3,)), ValueError, "spatial is for convolutions"),
        (lambda: ng.on_summed_inputs(torch.relu), TypeError, "an nn.Module is needed"),
        (lambda: ng.reparametrized(3), TypeError, "must be a function of the weight; got 3"),
        (lambda: ng.function_layer(3), TypeError, r"must be a function of \(weight, data\); got 3"),
        (lambda: ng.function_layer(F.conv2d, kernel=(3,), spatial=(2,)), ValueError, "none shorter than"),
    ],
)  # fmt: skip
def test_impossible_layers(make, error, message, unchecked):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("units", [4, 6, 8])
def test_groups_of_two_units(units):
    """SEM-15: z is a sign there, and cells would hold that do not if signs were all that is seen."""
    holds = (YES, YES, NO, YES, NO, YES)
    assert ng.check(nn.GroupNorm(units // 2, units), engines=["abstract", "graph"]).holds == holds


@pytest.mark.parametrize("function", [torch.sum, nn.Flatten(0), lambda w: None], ids=["sum", "flat", "none"])
def test_a_reparametrization_keeps_the_shape(function, unchecked):
    with pytest.raises(ValueError, match=r"must return a weight of the same shape, \(5, 4\); got"):
        ng.check(ng.reparametrized(function))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (OwnMatrix, ValueError, r"OwnMatrix is ambiguous: .* weight \(5, 4\). Use ng.owning_weight"),
        (lambda: nn.Sequential(nn.Tanh(), OwnMatrix()), ValueError, "weight='1.weight'"),
        (lambda: nn.LayerNorm, TypeError, "must be an object, not a class; got .*LayerNorm"),
        (lambda: nn.ModuleList([nn.Tanh()]), TypeError, "must have a forward that takes one tensor"),
        (lambda: nn.Bilinear(4, 4, 5), TypeError, "must have a forward that takes one"),
        (lambda: torch.jit.ScriptModule(), ValueError, "a scripted module has no state that can be replaced"),
        (lambda: lambda summed: summed, TypeError, r"must be a function of \(weight, data\); got"),
    ],
)  # fmt: skip
def test_ambiguous_and_impossible_modules(make, error, message, unchecked):
    with pytest.raises(error, match=message):
        ng.as_layer(make())
