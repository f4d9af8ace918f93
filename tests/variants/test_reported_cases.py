"""Reported confusions about these layers, each with its right answer."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import normgeom as ng
from normgeom.variants import variant
from normgeom.variants.measure import point
from normgeom.variants.weight import standardize, unit_rows


def filters(generator, shape=(8, 3, 3, 3)):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_weight_standardization_divides_by_sigma(generator):
    """SEM-03: the right form gives every filter standard deviation 1 and has degree 0."""
    weight = filters(generator)
    assert standardize(weight, 0.0).flatten(1).std(1, correction=0) == pytest.approx(torch.ones(8).double())
    assert torch.allclose(standardize(3 * weight, 0.0), standardize(weight, 0.0), rtol=0, atol=1e-14)


def test_one_group_is_layer_norm_over_everything_and_not_per_pixel(generator):
    """SEM-04."""
    weight, data = point(variant("group norm, conv"), generator=generator)
    one = variant("group norm, conv").with_options(groups=1)(weight, data)
    assert torch.allclose(one, variant("layer norm [C, H, W], conv")(weight, data), rtol=0, atol=1e-12)
    per_pixel = variant("layer norm per pixel, conv")(weight, data)
    assert not torch.allclose(one, per_pixel, atol=0.1)


def test_statistics_per_pixel_do_not_reach_other_pixels(generator):
    """SEM-04, SEM-06: which outputs a pixel's summed inputs reach."""
    images = torch.randn(1, 8, 2, 2, generator=generator, dtype=torch.float64)
    identity = torch.eye(8).double()[:, :, None, None]

    def reached(name):
        v = variant(name)
        jacobian = torch.autograd.functional.jacobian(lambda x: v.function(identity, x, **v.options), images)
        return int((jacobian.abs() > 1e-12).sum())

    assert (reached("layer norm [C, H, W], conv"), reached("layer norm per pixel, conv")) == (1024, 256)


def test_frozen_statistics_leave_no_invariance():
    """SEM-09: and moving them along with the weight brings it back, as the joint symmetry says."""
    assert not any(ng.check(variant("batch norm, eval"), engines=["numeric"]).holds)
    assert all(ng.check(variant("batch norm"), [ng.WeightMatrixRescale], engines=["numeric"]).holds)


@pytest.mark.parametrize(
    "name", ["RMSNorm", "layer norm", "weight norm", "cosine norm", "nGPT, re-parametrized"]
)
def test_a_negative_scale_flips_signs(name, generator):
    """SEM-11: an invariance to re-scaling is one to positive scales."""
    v = variant(name).with_eps(0.0)
    weight, data = point(v, generator=generator)
    flips = torch.allclose(v(-2 * weight, data), -v(weight, data), rtol=0, atol=1e-12)
    assert flips == (name != "nGPT, re-parametrized")
    assert not ng.check(v, [ng.WeightMatrixNegativeRescale])[0].holds


@pytest.mark.parametrize(
    "name", ["RMSNorm", "layer norm", "batch norm", "cosine norm", "weight demodulation"]
)
def test_a_zero_weight(name, generator):
    """SEM-11: 0/0 without eps, and 0 with one."""
    v = variant(name)
    weight, data = point(v, generator=generator)
    assert not v(0 * weight, data).any()
    if name != "batch norm":  # the library refuses eps = 0, so that the zoo's is 1e-300
        assert v.with_eps(0.0)(0 * weight, data).isnan().all()


def test_a_norm_per_unit_knows_its_axis():
    """WGT-03: the weight has units along axis 0; a norm of the whole tensor is no norm of each unit."""
    whole = ng.check(lambda w, x: x @ w.T / w.norm(), [ng.WeightMatrixRescale, ng.WeightVectorRescale])
    rows = ng.check(variant("weight norm"), [ng.WeightMatrixRescale, ng.WeightVectorRescale])
    assert (whole.holds, rows.holds) == ((True, False), (True, True))


def test_filters_of_length_one_have_fan_in_as_divisor(generator):
    """WGT-08: sum w^2 = 1 a filter: variance 1 over the 27 inputs of a filter, not over its 144 others."""
    weight = filters(generator, (16, 3, 3, 3))
    squares = (standardize(weight, 0.0) / 27**0.5).square().sum((1, 2, 3))
    assert squares == pytest.approx(torch.ones(16).double())
    assert unit_rows(weight).square().sum((1, 2, 3)) == pytest.approx(torch.ones(16).double())


def test_power_iterations_converge_to_the_zoo_s_spectral_norm(generator):
    """WGT-05: the library's weight has a norm above 1 until its power iteration has converged."""
    linear = nn.Linear(40, 40, bias=False).double()
    weight = torch.randn(40, 40, generator=generator, dtype=torch.float64)
    linear.weight.data.copy_(weight)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the library draws its first vectors from the global generator
        parametrizations.spectral_norm(linear)
    start = float(torch.linalg.matrix_norm(linear.weight.detach(), 2))
    for _ in range(2000):
        linear.weight  # noqa: B018, reading the weight makes a step
    exact = variant("spectral norm")(weight, torch.eye(40).double()).T
    assert start > 1 + 1e-6
    assert torch.allclose(linear.weight.detach(), exact, rtol=0, atol=1e-9)


def test_weight_standardization_of_few_inputs_is_degenerate():
    """WGT-07: with one input nothing is left, with two a sign."""
    one, two = torch.tensor([[0.3], [-2.0]]), torch.tensor([[1.0, 3.0], [2.0, -1.0]])
    assert standardize(one, 0.0).isnan().all()
    assert not standardize(one, 1e-5).any()
    assert torch.equal(standardize(two, 0.0), torch.tensor([[-1.0, 1.0], [1.0, -1.0]]))


@pytest.mark.parametrize("name", ["layer norm", "pre-norm", "decorrelated (ZCA) batch norm"])
def test_eps_is_to_blame_and_not_the_layer(name):
    """HYP-04: the naive comparison is broken by eps, not by the layer; without eps it holds."""
    v = variant(name)
    felt = [a for a, c in zip(ng.TABLE_1, v.claims, strict=True) if c.kind == "invariant up to eps"]
    assert all(
        verdict.kind is ng.Kind.UP_TO_EPS for verdict in ng.check(v.with_eps(1e-3), felt, engines=["numeric"])
    )


def test_squares_that_vanish_in_float32():
    """HYP-02: float64 holds what float32 loses."""
    data = torch.tensor([[1.0, 2.0, 3.0, 4.0]]) * 1e-40
    bare = variant("RMSNorm").with_eps(0.0)
    identity = torch.eye(4)
    assert not bare(identity, data).isfinite().all()
    expected = torch.tensor([[0.365148, 0.730297, 1.095445, 1.460593]], dtype=torch.float64)
    assert torch.allclose(bare(identity.double(), data.double()), expected, rtol=0, atol=1e-6)


def test_second_derivatives_of_weight_norm_follow_euler():
    """FUN-04: a function of degree 0 in v has H v = -g, which the library's fused operator misses."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        linear = parametrizations.weight_norm(nn.Linear(4, 1, bias=False, dtype=torch.float64))
        data = torch.randn(5, 4, dtype=torch.float64)
    parts = linear.parametrizations.weight
    gain, v = parts.original0.detach(), parts.original1.detach().requires_grad_()
    loss = ((gain.flatten() * variant("weight norm")(v, data)).tanh() ** 2).sum()
    (gradient,) = torch.autograd.grad(loss, v, create_graph=True)
    (product,) = torch.autograd.grad((gradient * v.detach()).sum(), v)
    assert torch.allclose(product, -gradient, rtol=0, atol=1e-12)
    right = [0.697332991963, -1.16482445891, 1.16879920532, -0.090877793698]
    assert product.flatten().tolist() == pytest.approx(right, abs=1e-11)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, in forward mode
def test_weight_norm_has_derivatives_in_forward_mode(generator):
    """FUN-04: along the rows themselves they vanish; the library's operator has none."""
    weight, data = point(variant("weight norm"), generator=generator)
    _, along = torch.func.jvp(lambda w: variant("weight norm")(w, data), (weight,), (weight,))
    assert float(along.abs().max()) < 1e-12


def test_the_library_s_weight_norm_has_its_symmetries():
    """FUN-04: its first derivatives are right, and finite transforms ask for no others."""
    found = ng.discover(parametrizations.weight_norm(nn.Linear(3, 4, bias=False)))
    assert [(one.name, one.multiplicity) for one in found] == [("per-row scale", 4)]
    assert found.confirmed == found.found
