"""Every layer of the zoo computes its formula: against loops, against the library, and with other options."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import normgeom as ng
from normgeom.variants import VARIANTS, variant
from normgeom.variants.measure import point
from tests.variants.oracles import ORACLES

by_name = pytest.mark.parametrize("v", VARIANTS, ids=lambda v: v.name)


def off(v, weight, data):
    """The largest difference from the oracle over its largest output."""
    expected = ORACLES[v.name](weight.numpy(), data.numpy(), **v.options)
    return float(np.abs(v(weight, data).numpy() - expected).max() / np.abs(expected).max())


def test_every_layer_has_an_oracle_and_a_name_of_its_own():
    assert {v.name for v in VARIANTS} == set(ORACLES)
    assert len({v.name for v in VARIANTS}) == len(VARIANTS) >= 40


@by_name
def test_the_layer_is_its_formula(v, generator):
    assert off(v, *point(v, generator=generator)) < 1e-12


@by_name
def test_with_a_large_eps_too(v, generator):
    """An eps in the wrong place shows when it is large."""
    assert off(v.with_eps(0.3), *point(v, generator=generator)) < 1e-12


@by_name
def test_the_oracle_rejects_a_small_change(v, generator):
    weight, data = point(v, generator=generator)
    wrong = dataclasses.replace(v, function=lambda w, x, **options: v.function(w, x, **options) * (1 + 1e-9))
    assert off(wrong, weight, data) > 1e-10


@by_name
def test_float32_stays_float32(v, generator):
    weight, data = (array.float() for array in point(v, generator=generator))
    assert v(weight, data).dtype == torch.float32
    assert torch.allclose(v(weight, data).double(), v(weight.double(), data.double()), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("v", [v for v in VARIANTS if v.norm is not None], ids=lambda v: v.name)
def test_the_statistics_say_the_same_up_to_a_constant(v, generator):
    weight, data = point(v, generator=generator)
    ratio = v.with_eps(0.0)(weight, data) / ng.normalize(v.norm, weight, data)
    assert float((ratio / ratio.mean() - 1).abs().max()) < 1e-10
    assert float(ratio.mean()) == pytest.approx({"FixNorm": 25.0}.get(v.name, 1.0))


LIBRARY = {
    "batch norm": lambda: nn.BatchNorm1d(5),
    "batch norm, conv": lambda: nn.BatchNorm2d(5),
    "layer norm": lambda: nn.LayerNorm(5),
    "layer norm [C, H, W], conv": lambda: nn.LayerNorm([5, 3, 3]),
    "RMSNorm": lambda: nn.RMSNorm(5, eps=1e-6),
    "group norm": lambda: nn.GroupNorm(2, 6),
    "group norm, conv": lambda: nn.GroupNorm(2, 6),
    "instance norm, conv": lambda: nn.InstanceNorm2d(5),
    "softmax": lambda: nn.Softmax(1),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_s_module_gives_the_same(name, generator):
    v = variant(name)
    weight, data = point(v, generator=generator)
    summed = torch.tensor(ORACLES["none"](weight.numpy(), data.numpy()))
    assert torch.allclose(v(weight, data), LIBRARY[name]().double()(summed), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["weight norm", "spectral norm"])
def test_the_library_s_parametrization_gives_the_same(name, generator):
    weight, data = point(variant(name), generator=generator)
    linear = nn.Linear(4, 5, bias=False).double()
    linear.weight.data.copy_(weight)
    if name == "weight norm":
        parametrizations.weight_norm(linear)
        linear.parametrizations.weight.original0.data.fill_(1.0)
    else:
        parametrizations.spectral_norm(linear, n_power_iterations=2000)
    assert torch.allclose(variant(name)(weight, data), linear(data), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pRMSNorm", {"share": 0.5}),
        ("pRMSNorm", {"share": 0.6}),
        ("batch renorm", {"r_max": 1.0, "d_max": 0.0}),
        ("switchable norm, conv", {"mean_weights": (2.0, 0.0, -1.0), "variance_weights": (0.0, 1.0, 3.0)}),
        ("EvoNorm B0, conv", {"v": 3.0}),
        ("EvoNorm S0, conv", {"groups": 3}),
        ("filter response norm + TLU, conv", {"tau": -0.4}),
        ("local response norm", {"size": 4, "alpha": 2.0, "beta": 1.5}),
        ("weight demodulation", {"style": 0.3, "eps": 0.1}),
        ("Derf", {"alpha": 2.0, "shift": 0.7}),
        ("DeepNorm", {"alpha": 3.0}),
    ],
)
def test_other_options(name, options, generator):
    v = variant(name)
    weight, data = point(v, generator=generator)
    changed = v.with_options(**options)
    assert off(changed, weight, data) < 1e-12
    assert not torch.allclose(changed(weight, data), v(weight, data))


def test_batch_renorm_without_correction_is_batch_norm(generator):
    v = variant("batch renorm").with_options(r_max=1.0, d_max=0.0)
    weight, data = point(v, generator=generator)
    assert torch.allclose(v(weight, data), variant("batch norm")(weight, data), rtol=0, atol=1e-12)


def test_wrong_shapes_and_names():
    with pytest.raises(ValueError, match=r"\(units, channels, height, width\) .*got weight \(5, 4\)"):
        variant("instance norm, conv")(torch.ones(5, 4), torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"group norm as declared has 6 units; got weight \(5, 4\)"):
        variant("group norm")(torch.ones(5, 4), torch.ones(3, 4))
    with pytest.raises(TypeError, match="DyT has no option beta; its options are: alpha"):
        variant("DyT").with_options(beta=1.0)
    with pytest.raises(KeyError, match=r"no layer 'layernorm' in the zoo; close are: .*layer norm"):
        variant("layernorm")
    with pytest.raises(KeyError, match="no claim on 'Rotate'"):
        _ = variant("DyT").claims["Rotate"]
