"""Curvature, length and KL."""

import pytest
import torch

from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.families import Gaussian
from normgeom.geometry.metric import curvature, kl_against_quadratic, kl_divergence, length, step_in_nats
from normgeom.geometry.null_space import annihilation_error, null_space
from normgeom.geometry.scaling import scaling_exponents
from tests.geometry.glms import problem


def noise(params, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in params.items()}


@pytest.mark.parametrize("norm", ["none", "bn", "ln"])
def test_curvature_is_the_quadratic_form(norm):
    model, params, data = problem(norm, "categorical")
    direction = noise(params)
    expected = closed_form_fisher(model, params, data).quadratic(direction)
    torch.testing.assert_close(curvature(model, params, data, direction), expected)
    torch.testing.assert_close(length(model, params, data, direction) ** 2, expected)
    weight_only = {"weight": direction["weight"]}
    expected = closed_form_fisher(model, params, data).quadratic(
        {n: direction[n] * (n == "weight") for n in params}
    )
    torch.testing.assert_close(curvature(model, params, data, weight_only), expected)


def test_curvature_of_a_function_and_a_module():
    model, params, data = problem("ln", "poisson")
    direction, module = noise(params), torch.nn.Linear(5, 4).double()
    as_function = curvature(lambda p, x: model(p, x), params, data, direction, family=model.family)
    torch.testing.assert_close(as_function, curvature(model, params, data, direction))
    own = {n: p.detach() for n, p in module.named_parameters()}
    linear = curvature(module, own, data, {n: direction[n] for n in own}, family=Gaussian())
    change = data @ direction["weight"].T + direction["bias"]
    torch.testing.assert_close(linear, change.pow(2).sum(1).mean())


def test_doubling_the_weights_halves_the_length_of_a_step_in_them():
    model, params, data = problem("ln", "categorical")
    step = {"weight": noise(params)["weight"]}
    doubled = {**params, "weight": 2 * params["weight"]}
    ratio = length(model, doubled, data, step) / length(model, params, data, step)
    assert ratio.item() == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "categorical"])
@pytest.mark.parametrize("norm", ["none", "wn", "bn", "ln", "rms"])
def test_the_error_of_the_quadratic_form_is_of_third_order(norm, family):
    model, params, data = problem(norm, family)
    direction = {n: 0.1 * d for n, d in noise(params).items()}
    found = kl_against_quadratic(model, params, data, direction)
    assert found.order == pytest.approx(3, abs=0.1)
    assert found.relative_errors[-1] < found.relative_errors[0] / 100


def test_a_linear_gaussian_model_has_no_error():
    model, params, data = problem("none", "gaussian")
    found = kl_against_quadratic(model, params, data, noise(params))
    assert found.order is None
    assert max(found.relative_errors) < 1e-12


def test_step_in_nats_measures_both_ways():
    model, params, data = problem("ln", "bernoulli")
    after = {n: params[n] + 1e-3 * d for n, d in noise(params).items()}
    step = step_in_nats(model, params, data, after)
    assert step.kl == float(kl_divergence(model, params, data, after))
    assert step.reverse_kl == float(kl_divergence(model, after, data, params))
    assert step.quadratic == pytest.approx(step.kl, rel=1e-2)
    assert step.length == pytest.approx((2 * step.quadratic) ** 0.5)


def test_a_direction_must_fit_the_parameters():
    model, params, data = problem("ln", "bernoulli")
    with pytest.raises(ValueError, match="names of parameters, weight, bias, gain; got gian"):
        curvature(model, params, data, {"gian": params["gain"]})
    with pytest.raises(ValueError, match=r"direction\['gain'\] must have.* shape \(4,\); got \(3,\)"):
        curvature(model, params, data, {"gain": params["gain"][:3]})


def test_curvature_and_kl_take_batches():
    model, params, data = problem("ln", "poisson")
    direction = noise(params)
    other = {name: params[name] + 0.1 * step for name, step in direction.items()}
    loader = [data[:2], data[2:]]
    assert float(curvature(model, params, loader, direction)) == pytest.approx(
        float(curvature(model, params, data, direction)), rel=1e-12
    )
    assert float(kl_divergence(model, params, loader, other)) == pytest.approx(
        float(kl_divergence(model, params, data, other)), rel=1e-12
    )
    assert step_in_nats(model, params, loader, other).kl == pytest.approx(
        step_in_nats(model, params, data, other).kl, rel=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_order_is_fitted_to_rounding_along_a_null_direction(dtype):
    model, params, data = problem("wn", "poisson")
    params = {name: value.to(dtype) for name, value in params.items()}
    found = kl_against_quadratic(model, params, data.to(dtype), {"weight": params["weight"]})
    assert found.order is None


def test_errors_name_what_is_wrong():
    model, params, data = problem("ln", "poisson")
    fisher = closed_form_fisher(model, params, data)
    with pytest.raises(TypeError, match="Pass F itself"):
        null_space(fisher.matrix)
    with pytest.raises(ValueError, match="must not be zero"):
        annihilation_error(fisher, {"bias": torch.zeros(4)})
    with pytest.raises(ValueError, match="name must be a parameter, of"):
        scaling_exponents(model, params, data, name="kernel")
    with pytest.raises(ValueError, match="one of the 4 rows of weight; got 4"):
        scaling_exponents(model, params, data, row=4)
    with pytest.raises(ValueError, match="tolerance must not be negative"):
        scaling_exponents(model, params, data, tolerance=-1.0)
    with pytest.raises(ValueError, match=r"after must have names of parameters, .*; got kernel"):
        step_in_nats(model, params, data, {"kernel": params["weight"]})
    with pytest.raises(TypeError, match="read several times, an iterator only once"):
        step_in_nats(model, params, iter([data]), params)
