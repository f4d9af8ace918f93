"""Families against torch.distributions and scipy.stats, by enumeration, quadrature and 50-digit numbers."""

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from torch import distributions as td

from normgeom.geometry.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Gamma,
    Gaussian,
    MeanVarianceGaussian,
    NegativeBinomial,
    NonCanonical,
    Poisson,
)
from tests import oracles

ETA = torch.tensor([[-0.7, -1.3, -0.2], [-2.1, -0.4, -0.9]], dtype=torch.float64)
STEP = torch.tensor([[0.02, -0.05, 0.1], [1.5, 0.3, -1.2]], dtype=torch.float64)


def probit(eta):
    return torch.special.log_ndtr(eta) - torch.special.log_ndtr(-eta)


# name: the family and the distribution that torch gives for the same outputs
ONE_PARAMETER = {
    "gaussian": (Gaussian(0.7), lambda e: td.Normal(e, 0.7**0.5)),
    "gamma": (Gamma(2.5), lambda e: td.Gamma(torch.full_like(e, 2.5), -2.5 * e)),
    "bernoulli": (Bernoulli(), lambda e: td.Bernoulli(logits=e)),
    "binomial": (Binomial(5), lambda e: td.Binomial(5, logits=e)),
    "poisson": (Poisson(), lambda e: td.Poisson(e.exp())),
    "negative binomial": (NegativeBinomial(2.5), lambda e: td.NegativeBinomial(2.5, probs=e.exp())),
    "probit": (NonCanonical(Bernoulli(), probit), lambda e: td.Bernoulli(td.Normal(0.0, 1.0).cdf(e))),
    "gamma log link": (
        NonCanonical.from_mean(Gamma(2.5), torch.exp),
        lambda e: td.Gamma(torch.full_like(e, 2.5), 2.5 * (-e).exp()),
    ),
}
OTHERS = {
    "categorical": (Categorical(), lambda e: td.Categorical(logits=e)),
    "mean and variance": (MeanVarianceGaussian(), None),
}
FAMILIES = {name: family for name, (family, _) in (ONE_PARAMETER | OTHERS).items()}
every_family = pytest.mark.parametrize("name", FAMILIES)
every_one_parameter = pytest.mark.parametrize("name", ONE_PARAMETER)


def outputs(name):
    return torch.cat([ETA, STEP], -1) if name == "mean and variance" else ETA


@every_one_parameter
def test_log_prob_mean_and_variance_are_torchs(name):
    family, reference = ONE_PARAMETER[name]
    expected, y = reference(ETA), family.sample(ETA, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(family.log_prob(y, ETA), expected.log_prob(y).sum(-1), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(family.mean(ETA), expected.mean, rtol=1e-13, atol=0)
    torch.testing.assert_close(family.variance(ETA), expected.variance, rtol=1e-13, atol=0)


def test_negative_binomial_is_scipys():
    y, p = np.arange(6.0), np.exp(-0.7)
    ours = NegativeBinomial(2.5).log_prob(torch.tensor(y)[:, None], torch.full((6, 1), -0.7).double())
    np.testing.assert_allclose(ours, stats.nbinom.logpmf(y, 2.5, 1 - np.float32(p).astype(float)), atol=1e-6)


@pytest.mark.parametrize("name", [n for n in ONE_PARAMETER if n != "negative binomial"])
def test_kl_is_torchs(name):
    family, reference = ONE_PARAMETER[name]
    far = ETA - STEP.abs()
    expected = td.kl_divergence(reference(ETA), reference(far)).sum(-1)
    torch.testing.assert_close(family.kl(ETA, far), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["bernoulli", "binomial", "poisson", "negative binomial", "categorical"])
def test_counts_by_enumeration(name):
    family, eta, far = FAMILIES[name], ETA, ETA - STEP.abs()
    found = oracles.enumerated_expectations(family, eta, far)
    for got, expected in zip((family.fisher(eta), family.kl(eta, far)), found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "gamma", "gamma log link", "mean and variance"])
def test_densities_by_quadrature(name):
    family = FAMILIES[name]
    eta = torch.tensor([-0.7, 0.4] if name == "mean and variance" else [-0.7], dtype=torch.float64)
    fisher, kl = oracles.integrated_expectations(family, eta, eta - 0.3)
    torch.testing.assert_close(family.fisher(eta), fisher, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(family.kl(eta, eta - 0.3), kl, rtol=1e-8, atol=1e-9)


@every_family
def test_score_is_the_gradient_of_log_prob(name):
    family, eta = FAMILIES[name], outputs(name)
    y = family.sample(eta, generator=torch.Generator().manual_seed(2))
    expected = torch.func.grad(lambda e: family.log_prob(y, e).sum())(eta)
    torch.testing.assert_close(family.score(y, eta), expected, rtol=1e-12, atol=1e-13)


@every_family
def test_fisher_is_the_hessian_of_kl(name):
    family, eta = FAMILIES[name], outputs(name)[0]
    hessian = torch.func.jacrev(torch.func.jacrev(lambda e: family.kl(eta, e)))(eta)
    torch.testing.assert_close(family.fisher(eta), hessian, rtol=1e-9, atol=1e-12)


@every_family
def test_the_forms_of_the_fisher_agree(name):
    family, eta = FAMILIES[name], outputs(name)
    fisher, root = family.fisher(eta), family.fisher_root(eta)
    vectors = torch.linspace(-1, 2, eta.numel(), dtype=eta.dtype).reshape(eta.shape)
    torch.testing.assert_close(root @ root.mT, fisher, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(family.fisher_product(eta, vectors), (fisher @ vectors[..., None])[..., 0])
    torch.testing.assert_close(family.fisher_diagonal(eta), fisher.diagonal(dim1=-2, dim2=-1))
    assert not family.independent or torch.equal(fisher, torch.diag_embed(family.fisher_diagonal(eta)))


@pytest.mark.parametrize(
    "name", [n for n, (f, _) in ONE_PARAMETER.items() if not isinstance(f, NonCanonical)]
)
def test_the_cumulant_generates_mean_and_variance(name):
    family = FAMILIES[name]
    slope = torch.func.grad(lambda e: family.cumulant(e).sum())
    curvature = torch.func.grad(lambda e: slope(e).sum())(ETA)
    torch.testing.assert_close(family.mean(ETA), slope(ETA), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(family.variance(ETA), family.dispersion * curvature, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(family.natural(family.mean(ETA)), ETA, rtol=1e-12, atol=1e-13)


@every_family
def test_samples_have_the_mean_and_the_covariance(name):
    family, eta = FAMILIES[name], outputs(name)[0].expand(20000, -1)
    y = family.sample(eta, generator=torch.Generator().manual_seed(3))
    y = torch.nn.functional.one_hot(y, 3).double() if name == "categorical" else y
    covariance = family.covariance(eta[0])
    errors = (y.mean(0) - family.mean(eta[0])) / (covariance.diagonal() / 20000).sqrt()
    assert errors.abs().max() < 4
    scale = covariance.diagonal().sqrt()
    relative = (y.T.cov(correction=0) - covariance) / torch.outer(scale, scale)
    assert relative.abs().max() < 0.06


@pytest.mark.parametrize("family", [Bernoulli(), Categorical(), Binomial(3)])
@pytest.mark.parametrize("scale", [50.0, 1000.0])
def test_saturated_float32_outputs_match_float64(family, scale):
    eta = torch.tensor([[1.0, -0.9, 0.97], [-1.0, 0.1, -0.2]]) * scale
    for quantity in (family.fisher, family.fisher_root, family.mean, lambda e: family.kl(e, e / 2)):
        torch.testing.assert_close(quantity(eta).double(), quantity(eta.double()), rtol=1e-4, atol=1e-18)
    direction = torch.tensor([1.0, 2.0, -1.0]).expand_as(eta)
    expected = (family.fisher(eta.double()) @ direction.double()[..., None])[..., 0]
    torch.testing.assert_close(
        family.fisher_product(eta, direction).double(), expected, rtol=1e-4, atol=1e-18
    )


def test_the_likeliest_class_keeps_its_digits():
    eta = torch.tensor([40.0, 0.0, 1.0], dtype=torch.float64)
    with mpmath.workdps(50):
        rest = sum(mpmath.e**k for k in (-40, -39))
        expected = float(rest / (1 + rest) ** 2)
    assert Categorical().fisher(eta)[0, 0].item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("size", [1e-9, 1e-4, 0.3])
@pytest.mark.parametrize("name", ["bernoulli", "poisson", "gamma", "negative binomial", "categorical"])
def test_kl_keeps_its_digits_for_small_steps(name, size):
    family, step = FAMILIES[name], torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64) * size
    far = ETA[0] + step
    expected = oracles.kl_in_50_digits(name, ETA[0].tolist(), far.tolist())
    assert family.kl(ETA[0], far).item() == pytest.approx(expected, rel=3e-16 / size + 1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gaussian(0.0), r"Gaussian: dispersion must be a finite number > 0; got 0.0"),
        (lambda: Gamma(float("nan")), "Gamma: shape must be a finite number > 0; got nan"),
        (lambda: Binomial(2.5), "Binomial: trials must be a whole number > 0; got 2.5"),
        (
            lambda: Gamma().check(-ETA),
            "Gamma: the natural parameter must be negative; got a largest one of 2.1",
        ),
        (lambda: Poisson().check(ETA / 0), "Poisson: eta must be finite; got 6 values of 6 that are not"),
        (lambda: Poisson().log_prob(ETA[0], ETA), r"y must have the shape of eta.*y \(3,\) and eta \(2, 3\)"),
        (lambda: Poisson().check_targets(ETA, ETA), "Poisson: targets must be whole numbers from 0; got"),
        (lambda: Binomial(2).check_targets(-10 * ETA.round(), ETA), "whole numbers from 0 up to 2"),
        (lambda: Gamma().check_targets(ETA, ETA), "Gamma: targets must be positive"),
        (
            lambda: Categorical().log_prob(ETA[:, 0], ETA),
            r"whole class indices.*\(2,\), or be one-hot \(2, 3\)",
        ),
        (
            lambda: Categorical().check_targets(torch.tensor([0, 3]), ETA),
            r"indices must lie in 0..2; got.*0 to 3",
        ),
        (lambda: Categorical().check_targets(ETA, ETA), "targets of eta's shape must be one-hot"),
        (
            lambda: MeanVarianceGaussian().mean(ETA),
            "means, then as many log variances; got an odd number of outputs, 3",
        ),
        (
            lambda: MeanVarianceGaussian().log_prob(ETA[:, :1], ETA[:, :1].repeat(1, 4)),
            "one number for every two",
        ),
    ],
)
def test_errors_say_what_must_hold(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_transfer_function_needs_one_parameter_outputs():
    with pytest.raises(TypeError, match="one natural parameter each; got Categorical"):
        NonCanonical(Categorical(), torch.exp)
