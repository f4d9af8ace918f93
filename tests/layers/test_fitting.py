"""What a module takes, found by calling it: how many units, and whether images."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgeom as ng

YES, NO = True, False


class Gained(nn.Module):
    """A norm that only its gain's length ties to a number of units; a mixing weight of 3 does not."""

    def __init__(self, *shape):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(shape))
        self.mix = nn.Parameter(torch.zeros(3))

    def forward(self, summed):
        return self.gain * self.mix.softmax(0)[0] * F.normalize(summed, dim=1)


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
