"""The normalized GLM: parameters, likelihood, samples, and fits that reach a minimum on real data."""

from functools import cache

import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import avg_pool2d

import normgeom as ng
from normgeom.geometry.families import Categorical, Gamma, Gaussian, Poisson
from normgeom.geometry.fit import fit
from normgeom.geometry.glm import NormalizedGLM
from normgeom.geometry.metric import curvature
from normgeom.norms import BatchNorm, LayerNorm, NoNorm, Norm, RMSNorm, WeightNorm
from tests.geometry.glms import problem


def test_init_has_gain_one_and_bias_zero():
    params = NormalizedGLM(LayerNorm(), Gaussian()).init(200, 3, generator=torch.Generator().manual_seed(0))
    assert params["gain"].tolist() == [1, 1, 1]
    assert params["bias"].tolist() == [0, 0, 0]
    assert params["weight"].var().item() == pytest.approx(1 / 200, rel=0.2)
    assert set(NormalizedGLM(NoNorm(), Gaussian()).init(2, 3, generator=torch.Generator())) == {
        "weight",
        "bias",
    }


def test_outputs_are_gain_times_z_plus_bias():
    model, params, data = problem("rms", "gaussian")
    a = data @ params["weight"].T
    expected = params["gain"] * a / a.pow(2).mean(1, keepdim=True).sqrt() + params["bias"]
    torch.testing.assert_close(model(params, data), expected)
    torch.testing.assert_close(
        model.log_likelihood(params, data, expected),
        torch.distributions.Normal(expected, 0.7**0.5).log_prob(expected).sum(1),
    )


def test_samples_follow_the_generator():
    model, params, data = problem("bn", "poisson")
    draw = lambda: model.sample(params, data, generator=torch.Generator().manual_seed(3))  # noqa: E731
    assert torch.equal(draw(), draw())
    assert draw().shape == (60, 4)


@cache
def fitted(norm):
    bunch = load_digits()
    data = avg_pool2d(torch.tensor(bunch.images[:300, None] / 16), 2).flatten(1)
    model, labels = NormalizedGLM(norm, Categorical()), torch.tensor(bunch.target[:300])
    start = model.init(16, 10, generator=torch.Generator().manual_seed(0))
    result = model.fit(start, data, labels, output_penalty=0.1, tolerance=1e-5)
    accuracy = (model(result.params, data.float()).argmax(1) == labels).double().mean()
    return result, float(accuracy)


@pytest.mark.parametrize("norm", [NoNorm(), WeightNorm(), BatchNorm(), LayerNorm(), RMSNorm()])
def test_fit_reaches_a_minimum_on_digits(norm):
    result, accuracy = fitted(norm)
    assert result.converged, result
    assert result.gradient_norm < 1e-4
    assert result.params["weight"].dtype == torch.float32
    assert accuracy > 0.85


def test_methods_that_only_reparametrize_reach_the_same_minimum():
    losses = [fitted(norm)[0].loss for norm in (NoNorm(), WeightNorm(), BatchNorm())]
    assert max(losses) - min(losses) < 1e-6


def test_fit_of_a_poisson_regression_recovers_its_truth():
    truth = {"weight": torch.tensor([[0.5, -0.3]]), "bias": torch.tensor([0.2])}
    generator = torch.Generator().manual_seed(0)
    data, model = torch.randn(4000, 2, generator=generator), NormalizedGLM(NoNorm(), Poisson())
    start = {name: torch.zeros_like(value) for name, value in truth.items()}
    result = fit(model, start, data, model.sample(truth, data, generator=generator))
    assert result.converged
    for name, value in truth.items():
        step = {name: result.params[name] - value}
        # Half the step's curvature times the cases is a chi-squared variable of few degrees of freedom.
        assert 4000 * float(curvature(model, truth, data, step)) < 15


def test_a_norm_without_a_closed_form_can_be_fitted():
    class Doubled:
        def statistics(self, weight, data):
            return 0, 4.0

    model: NormalizedGLM = NormalizedGLM(Doubled(), Gaussian())
    _, params, data = problem("none", "gaussian")
    result = fit(model, params, data, data[:, :4])
    assert result.converged
    torch.testing.assert_close(result.params["weight"] / 2, torch.eye(4, 5).double(), atol=1e-4, rtol=0)


def test_fit_says_when_it_did_not_converge():
    model, params, data = problem("ln", "poisson")
    result = fit(model, params, data, model.sample(params, data, generator=torch.Generator()), max_steps=2)
    assert not result.converged
    assert result.gradient_norm > 1e-3
    assert "LIMIT" in result.message


def _broken(**changes):
    model, params, data = problem("ln", "poisson")
    targets = model.sample(params, data, generator=torch.Generator().manual_seed(0))
    call = {"model": model, "params": params, "data": data, "targets": targets} | changes
    return lambda: fit(**call)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            _broken(data=torch.full((60, 5), torch.nan).double()),
            "got 60 cases, 60 bad",
        ),
        (_broken(data=torch.zeros(60, 5).double()), "240 of 240 are not, in 60 cases. LayerNorm divides by"),
        (_broken(targets=torch.zeros(59, 4)), "one target for each case; got 59 for 60 cases"),
        (_broken(targets=torch.full((60, 4), 0.5)), "Poisson: targets must be whole numbers from 0"),
        (
            _broken(params={"weight": torch.zeros(4, 5)}),
            "'weight', 'bias' and.* got .'weight'.",
        ),
        (_broken(output_penalty=-1.0), "output_penalty must be a finite number >= 0; got -1.0"),
        (_broken(model=NormalizedGLM(LayerNorm(), Gamma())), "Gamma: the natural parameter must be negative"),
    ],
)
def test_fit_refuses_what_cannot_be_fitted(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["data", "targets"])
def test_fit_takes_tensors(name):
    with pytest.raises(TypeError, match=f"{name} must be a tensor; got list"):
        _broken(**{name: [[0.0]] * 60})()


def test_sizes_and_generators_that_are_none():
    model, params, data = problem("ln", "poisson")
    with pytest.raises(ValueError, match="units must be at least 1, and a whole number; got 0"):
        model.init(3, 0, generator=torch.Generator())
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator; got NoneType"):
        model.init(3, 4, generator=None)
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator; got NoneType"):
        model.sample(params, data, generator=None)


@pytest.mark.parametrize("metric", ["gain_metric", "gain_metric_as_printed"])
def test_a_gain_metric_needs_cases_of_the_parameters_type(metric):
    model, params, data = problem("ln", "poisson")
    with pytest.raises(ValueError, match="data must hold at least one case"):
        getattr(ng, metric)(model, params, data[:0])
    with pytest.raises(ValueError, match="parameters and data must have one dtype"):
        getattr(ng, metric)(model, params, data.float())


def test_calls_with_wrong_shapes_are_refused():
    model, params, data = problem("ln", "gaussian")
    with pytest.raises(ValueError, match=r"gain must have one number a unit, shape \(4,\).*got \(3,\)"):
        model({**params, "gain": torch.ones(3).double()}, data)
    with pytest.raises(ValueError, match=r"one dtype; got torch.float32, torch.float64"):
        model({**params, "gain": torch.ones(4)}, data)
    norm: Norm = model.norm
    assert isinstance(norm, LayerNorm)
