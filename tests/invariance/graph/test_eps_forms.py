"""An eps is what it does, however it is written; a small constant that is none is not excused."""

import pytest
import torch

import normgeom as ng

Kind = ng.Kind
EPS = 1e-5


def mean(z):
    return z.mean(1, keepdim=True)


def square_mean(z):
    return mean(z * z)


def centred(z):
    return z - mean(z)


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def bounded(length):
    return torch.where(length < 1e-6, number(1e-6), length)


def inverse_covariance(z):
    c = z - z.mean(0)
    return c @ torch.linalg.inv(c.T @ c / len(c) + EPS * torch.eye(z.shape[1], dtype=z.dtype)) @ c.T


def lower_covariance(z):
    c = z - z.mean(0)
    lower = torch.linalg.cholesky(torch.cov(c.T, correction=0) + EPS * torch.eye(z.shape[1], dtype=z.dtype))
    return torch.linalg.solve_triangular(lower, c.T, upper=False).T


FORMS = {
    "a variance in one pass": lambda z: centred(z) / (square_mean(z) - mean(z) ** 2 + EPS).sqrt(),
    "a one-pass variance of sums": lambda z: (
        centred(z) / ((z.square().sum(1, True) - 5 * mean(z) ** 2) / 5 + EPS).sqrt()
    ),
    "two equal nodes": lambda z: centred(z) / (mean(centred(z) * centred(z)) + EPS).sqrt(),
    "einsum": lambda z: z / (torch.einsum("nd,nd->n", z, z)[:, None] / 5 + EPS).sqrt(),
    "a diagonal": lambda z: z / (torch.diagonal(z @ z.T)[:, None] / 5 + EPS).sqrt(),
    "bmm": lambda z: z / (torch.bmm(z[:, None], z[:, :, None])[:, :, 0] / 5 + EPS).sqrt(),
    "vecdot": lambda z: z * (torch.linalg.vecdot(z, z)[:, None] + EPS).rsqrt(),
    "linalg.norm": lambda z: z / (torch.linalg.norm(z, dim=1, keepdim=True) + EPS),
    "cdist": lambda z: z / (torch.cdist(z, torch.zeros_like(z[:1])) + EPS),
    "hypot": lambda z: z / torch.hypot(z.norm(dim=1, keepdim=True), number(1e-3)),
    "std + eps": lambda z: centred(z) / (z.std(1, keepdim=True) + EPS),
    "exp and log": lambda z: z * torch.exp(-0.5 * torch.log(square_mean(z) + EPS)),
    "a constant before": lambda z: z / (number(EPS) + square_mean(z)).sqrt(),
    "the square of a constant": lambda z: z / (square_mean(z) + number(1e-3) ** 2).sqrt(),
    "an eps for each unit": lambda z: z / (square_mean(z) + EPS * torch.arange(1.0, 6.0)).sqrt(),
    "a factor of one": lambda z: z / torch.add(square_mean(z), 1, alpha=EPS).sqrt(),
    "a negative constant subtracted": lambda z: z / (square_mean(z) - (-EPS)).sqrt(),
    "a choice": lambda z: z / bounded(z.norm(dim=1, keepdim=True)),
    "a mask": lambda z: z / (n := z.norm(dim=1, keepdim=True)).masked_fill(n < 1e-6, 1e-6),
    "a bound before": lambda z: z / torch.maximum(number(1e-6), z.norm(dim=1, keepdim=True)),
}  # fmt: skip
OF_CASES = {
    "torch.cov": lambda z: (z - z.mean(0)) / (torch.cov(z.T, correction=0).diagonal() + EPS).sqrt(),
    "an inverse": inverse_covariance,
    "Cholesky's factor": lower_covariance,
}

NO_EPS = {
    "a leak": lambda z: z / (square_mean(z) + EPS).sqrt() + 1e-3 * z,
    "a stray bias": lambda z: (z + 1e-3) / square_mean(z + 1e-3).sqrt(),
    "a bias in the numerator alone": lambda z: (z + 1e-3) / square_mean(z).sqrt(),
    "a bias of what is never negative": lambda z: (z.relu() + 1e-3) / square_mean(z.relu() + 1e-3).sqrt(),
    "a bias after the centring": lambda z: (centred(z) + 1e-3) / (square_mean(centred(z)) + EPS).sqrt(),
    "a large constant beside a small factor": lambda z: z / (1e-8 * square_mean(z) + EPS).sqrt(),
    "beside what falls as the rest grows": lambda z: z * (1 / square_mean(z) + EPS).sqrt(),
    "beside a mean of any sign": lambda z: z / (mean(z) + EPS),
    "beside one number of any sign": lambda z: z / (z.mean() + 1e-3).abs(),
    "beside a product of any sign": lambda z: z / (z[:, :1] * z[:, 1:2] + EPS).abs().sqrt(),
    "a dead zone": lambda z: torch.where(z.abs() < 1e-3, 0.0, z) / square_mean(z).sqrt(),
    "a choice by something else": lambda z: z / torch.where(z < 1e-6, 1e-6, z.norm(dim=1, keepdim=True)),
    "a variance for a deviation": lambda z: z / (square_mean(z) + EPS),
    "a saturated function": lambda z: torch.tanh(z / 1e-9),
}


def on_sums(function, action, **options):
    (verdict,) = ng.check(lambda weight, data: function(data @ weight.T), [action], **options)
    return verdict


@pytest.mark.parametrize("name", FORMS)
def test_an_eps_is_found_however_it_is_written(name):
    verdict = on_sums(FORMS[name], ng.CaseRescale)
    assert verdict.kind is Kind.UP_TO_EPS
    assert {"numeric", "graph"} <= set(verdict.engines)
    assert "eps (" in verdict.reason
    assert "test_eps_forms.py" in verdict.reason


@pytest.mark.parametrize("name", OF_CASES)
def test_an_eps_in_a_matrix_of_statistics(name):
    verdict = on_sums(OF_CASES[name], ng.DatasetRescale, inputs=7, cases=8)
    assert verdict.kind is Kind.UP_TO_EPS
    assert "+ eps (1e-05), test_eps_forms.py" in verdict.reason


def test_a_singular_matrix_is_undecided_and_says_what_to_do():
    verdict = on_sums(lower_covariance, ng.DatasetRescale)
    assert verdict.kind is Kind.UNDECIDED
    assert "more inputs and cases than units" in verdict.reason


@pytest.mark.parametrize("name", NO_EPS)
def test_a_small_constant_that_is_no_eps_is_not_excused(name):
    verdict = on_sums(NO_EPS[name], ng.WeightMatrixRescale)
    assert verdict.kind is Kind.NOT_INVARIANT
    assert "graph" in verdict.engines


def test_the_breaking_is_in_proportion_to_the_eps():
    def error(eps):
        form = lambda z: centred(z) / (square_mean(z) - mean(z) ** 2 + eps).sqrt()  # noqa: E731
        return on_sums(form, ng.WeightMatrixRescale(2.0), engines=["graph"]).error

    assert error(1e-5) / error(1e-8) == pytest.approx(1000, rel=0.02)
