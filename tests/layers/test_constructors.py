import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import normgeom as ng

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


class Standardized(nn.Module):
    """A user's parametrization."""

    def forward(self, weight):
        return (weight - weight.mean(1, keepdim=True)) / weight.std(1, keepdim=True)


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


class OwnMatrix(nn.Module):
    """A layer that keeps its weight itself, in no linear part."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)))

    def forward(self, data):
        return F.layer_norm(data @ self.weight.T, (5,), eps=0.0)


class Gained(nn.Module):
    """A norm that only its gain's length ties to a number of units; a mixing weight of 3 does not."""

    def __init__(self, *shape):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(shape))
        self.mix = nn.Parameter(torch.zeros(3))

    def forward(self, summed):
        return self.gain * self.mix.softmax(0)[0] * F.normalize(summed, dim=1)


def test_a_weight_that_a_module_keeps_itself_is_named():
    assert ng.check(ng.owning_weight(OwnMatrix(), weight="weight"), engines=["numeric"]).holds == (
        YES, YES, NO, YES, NO, YES,
    )  # fmt: skip


class PerGroup(nn.Module):
    """A norm with one gain a group: it takes every multiple of 4 units."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4, 1))

    def forward(self, summed):
        groups = summed.reshape(len(summed), 4, -1)
        return (self.gain * F.normalize(groups, dim=2)).flatten(1)


def test_a_number_that_units_must_only_be_a_multiple_of_fixes_none():
    assert ng.as_layer(PerGroup()).units is None
    assert ng.check(PerGroup(), [ng.WeightMatrixRescale], units=12, engines=["numeric"]).holds == (YES,)


def test_the_units_that_fit_are_found():
    assert ng.as_layer(Gained(7)).units == 7
    assert ng.on_summed_inputs(Gained(1, 6, 1, 1), kernel=(2, 2)).units == 6
    assert ng.as_layer(Gained(1)).units is None
    random = torch.get_rng_state()
    assert ng.as_layer(nn.Sequential(nn.Dropout(0.5), Gained(7))).units == 7
    assert torch.equal(random, torch.get_rng_state())


class ImageNorm(nn.Module):
    """A norm of one's own for images, (cases, units, height, width)."""

    def __init__(self, units=1, axes=(2, 3)):
        super().__init__()
        self.gain, self.axes = nn.Parameter(torch.ones(units, 1, 1)), axes

    def forward(self, images):
        return self.gain * images / images.square().mean(self.axes, keepdim=True).sqrt()


def test_a_module_that_takes_only_images_gets_images():
    layer = ng.as_layer(ImageNorm(8))
    assert (layer.units, layer.convolution.kernel) == (8, (2, 2))
    holds = ng.check(ImageNorm(8), engines=["numeric"]).holds
    assert holds == (YES, NO, YES, YES, NO, YES)
    assert holds == ng.check(nn.Sequential(nn.Conv2d(4, 8, 2, bias=False), ImageNorm(8))).holds
    assert ng.as_layer(ImageNorm(axes=(2, 3, 4))).convolution.kernel == (2, 2, 2)


@pytest.mark.parametrize("module", [nn.LayerNorm(5), nn.GroupNorm(2, 6), PerGroup(), nn.Flatten(), nn.Tanh()])
def test_a_module_that_takes_summed_inputs_gets_no_images(module):
    assert ng.as_layer(module).convolution.kernel == ()


def test_rms_norm_over_images_has_images():
    assert ng.as_layer(nn.RMSNorm([5, 3, 3])).convolution.kernel == (2, 2)
    assert ng.check(nn.RMSNorm([5, 3, 3]), engines=["numeric"]).holds == (YES, NO, NO, YES, NO, YES)


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


def test_a_norm_before_the_weight_is_named():
    module = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 5, bias=False))
    assert ng.check(ng.owning_weight(module), engines=["numeric"]).holds == (NO, NO, NO, YES, NO, YES)
    assert ng.check(module, engines=["numeric"]).holds == (YES, YES, NO, YES, NO, YES)
