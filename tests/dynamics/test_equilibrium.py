"""Equilibrium and growth against random walks of the optimizers themselves."""

import math

import numpy as np
import pytest
import torch
from torch import optim

from normgeom import AdamRule, LionRule, SGDRule, angular_update, equilibrium, norm_growth
from tests.dynamics.runs import Lion

C, L = 300, 25.0
DECAYED = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.02),
    "momentum": lambda p: optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.02),
    "nesterov": lambda p: optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.02),
    "dampening": lambda p: optim.SGD(p, lr=0.2, momentum=0.9, dampening=0.5, weight_decay=0.004),
    "AdamW": lambda p: optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "Adam with L2": lambda p: optim.Adam(p, lr=0.02, weight_decay=2e-3),
    "Lion": lambda p: Lion(p, lr=2e-3, weight_decay=1.0),
    "Lion without memory": lambda p: Lion(p, lr=2e-3, betas=(0.0, 0.99), weight_decay=1.0),
}
# The laws of Adam hold where the norm changes little in the 1/(1 − β₂) steps that its divisor remembers.
APPROACHED = {
    "SGD": DECAYED["SGD"],
    "AdamW": lambda p: optim.AdamW(p, lr=0.02, betas=(0.9, 0.95), weight_decay=0.1),
    "Adam with L2": lambda p: optim.Adam(p, lr=0.02, betas=(0.9, 0.95), weight_decay=2e-3),
}
FREE = {
    "SGD": (lambda p: optim.SGD(p, lr=0.05), 0.02),
    "momentum": (lambda p: optim.SGD(p, lr=0.005, momentum=0.9), 0.02),
    "AdamW": (lambda p: optim.AdamW(p, lr=0.02, betas=(0.9, 0.95), weight_decay=0.0), 0.05),
    "Lion": (lambda p: Lion(p, lr=2e-3), 0.05),
}


def walk(make, norm, steps, seed=0):
    """A random walk of gradients orthogonal to w, of squared length L/‖w‖²: norms and angles of its steps."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(C, generator=generator, dtype=torch.float64)
    p = torch.nn.Parameter(w * norm / w.norm())
    optimizer, norms, angles = make([p]), [], []
    for _ in range(steps):
        before = p.detach().clone()
        g = torch.randn(C, generator=generator, dtype=torch.float64)
        g -= (g @ before) / (before @ before) * before
        p.grad = g * math.sqrt(L) / (g.norm() * before.norm())
        optimizer.step()
        norms.append(float(before.norm()))
        angles.append(float(angular_update(before, p)))
    return np.array(norms), np.array(angles)


@pytest.mark.parametrize("make", DECAYED.values(), ids=DECAYED)
def test_a_random_walk_stays_at_the_equilibrium(make):
    found = equilibrium(make([torch.nn.Parameter(torch.ones(C))]), coordinates=C, squared_gradient=L)
    norms, angles = walk(make, found.norm, 3000)
    assert norms[500:].mean() == pytest.approx(found.norm, rel=0.015)
    assert angles[500:].mean() == pytest.approx(found.angle, rel=0.015)


@pytest.mark.parametrize("make", APPROACHED.values(), ids=APPROACHED)
def test_a_small_difference_falls_by_e_in_the_time_given(make):
    found = equilibrium(make([torch.nn.Parameter(torch.ones(C))]), coordinates=C, squared_gradient=L)
    norms, _ = walk(make, 1.1 * found.norm, int(found.steps) + 1)
    power = 4 if make is APPROACHED["SGD"] else 2
    left = (norms[-1] ** power - found.norm**power) / (norms[0] ** power - found.norm**power)
    assert left == pytest.approx(math.exp(-1), rel=0.15)


@pytest.mark.parametrize(("make", "rtol"), FREE.values(), ids=FREE)
def test_without_decay_the_norm_grows_by_its_law(make, rtol):
    norms, _ = walk(make, 2.0, 1500)
    optimizer = make([torch.nn.Parameter(torch.ones(C))])
    wanted = norm_growth(optimizer, 2.0, np.arange(1500), coordinates=C, squared_gradient=L)
    assert norms[-1] > 1.2 * norms[0]
    np.testing.assert_allclose(norms[1000:], wanted[1000:], rtol=rtol)


@pytest.mark.parametrize(
    ("lr", "wd", "ratio", "angle", "norm4"),
    [(0.1, 0.01, 0.4472136, 0.0447214, 125.0), (0.02, 0.01, 1.0, 0.02, 25.0), (0.1, 0.002, 0.2, 0.02, 625.0)],
)
def test_ratio_of_gradient_and_weight_at_the_equilibrium_of_sgd(lr, wd, ratio, angle, norm4):
    """DYN-02: the ratio is sqrt(2 wd / lr), so the gradient grows as lr falls."""
    found = equilibrium(SGDRule(lr, weight_decay=wd), squared_gradient=25.0)
    assert 5.0 / found.norm**2 == pytest.approx(ratio, rel=0.01)
    assert found.angle == pytest.approx(angle, rel=0.01)
    assert found.norm**4 == pytest.approx(norm4, rel=0.01)


def test_dampening_without_momentum_has_no_effect():
    plain, dampened = SGDRule(0.1, weight_decay=0.01), SGDRule(0.1, dampening=0.5, weight_decay=0.01)
    assert equilibrium(dampened, squared_gradient=L) == equilibrium(plain, squared_gradient=L)
    grown = norm_growth(SGDRule(0.1, dampening=0.5), 1.0, 200, squared_gradient=3.75)
    assert grown == pytest.approx(2.0)


def test_a_wrong_law_is_seen():
    # Lion's signs taken as independent: the walk must reject it.
    make = DECAYED["Lion"]
    independent = equilibrium(LionRule(2e-3, 0.0, 0.99, 1.0), coordinates=C)
    assert walk(make, independent.norm, 1500)[0][-1] > 2 * independent.norm


@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.99), (0.95, 0.98), (0.5, 0.9)])
def test_persistence_of_signs_against_sampled_signs(beta1, beta2, generator):
    g = torch.randn(20_000, 60, generator=generator)
    mean, total, signs = torch.zeros(60), torch.zeros(60), []
    for row in g:
        signs.append((beta1 * mean + (1 - beta1) * row).sign())
        mean = beta2 * mean + (1 - beta2) * row
    total = torch.stack(signs).reshape(-1, 2000, 60).sum(1)
    assert float(total.square().mean() / 2000) == pytest.approx(
        LionRule(1.0, beta1, beta2).persistence, rel=0.15
    )


TOO_LARGE = {
    "SGD": (SGDRule(0.1, weight_decay=25.0), r"needs ηλ\(1−τ\) < 2; got 2.5"),
    "SGD at the limit": (SGDRule(1.0, weight_decay=2.0), r"needs ηλ\(1−τ\) < 2; got 2:"),
    "momentum": (SGDRule(1.0, 0.5, weight_decay=3.0), r"needs ηλ\(1−τ\) < 3; got 3"),
    "momentum of 1": (SGDRule(0.1, 1.0, weight_decay=0.1), r"momentum must be in \[0, 1\).*got 1"),
    "AdamW": (AdamRule(1.0, weight_decay=2.0), "needs ηλ < 2; got 2"),
    "Lion": (LionRule(1.0, weight_decay=3.0), "needs ηλ < 1; got 3"),
    "beta1 of 1": (LionRule(0.1, 1.0, weight_decay=0.1), r"beta1 must be in \[0, 1\)"),
}


@pytest.mark.parametrize(("rule", "text"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_where_no_norm_is_kept_the_condition_is_named(rule, text):
    with pytest.raises(ValueError, match=text):
        equilibrium(rule, coordinates=C, squared_gradient=L)


def test_a_growth_from_nowhere_is_named():
    with pytest.raises(ValueError, match=r"norm must be finite and at least 0; got -1\.0"):
        norm_growth(SGDRule(0.1), -1.0, 10, squared_gradient=L)
    with pytest.raises(ValueError, match="steps must be finite and at least 0; got -5"):
        norm_growth(SGDRule(0.1), 1.0, -5, squared_gradient=L)
    with pytest.raises(ValueError, match=r"steps must be finite and at least 0; got \[ 1\. -1\.\]"):
        norm_growth(SGDRule(0.1), 1.0, [1, -1], squared_gradient=L)
    with pytest.raises(ValueError, match=r"momentum must be in \[0, 1\)"):
        norm_growth(SGDRule(0.1, momentum=1.0), 1.0, 10, squared_gradient=L)


def test_what_is_missing_is_named():
    w = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=r"above 0; got 0.1 and 0. Without decay see norm_growth"):
        equilibrium(optim.SGD([w], lr=0.1), squared_gradient=1.0)
    with pytest.raises(ValueError, match="squared_gradient must be given"):
        equilibrium(SGDRule(0.1, weight_decay=0.1))
    with pytest.raises(ValueError, match="coordinates must be given"):
        equilibrium(AdamRule(0.1, weight_decay=0.1))
    with pytest.raises(ValueError, match="coordinates must be a finite number above 0; got -1"):
        equilibrium(AdamRule(0.1, weight_decay=0.1), coordinates=-1)
    with pytest.raises(ValueError, match=r"without weight decay; got 0\.1"):
        norm_growth(AdamRule(0.1, weight_decay=0.1), 1.0, 10, coordinates=3)
    with pytest.raises(ValueError, match="has 1 groups; got group=1"):
        equilibrium(optim.SGD([w], lr=0.1), group=1)
    with pytest.raises(ValueError, match="no law for this optimizer: its steps shrink"):
        equilibrium(optim.Adagrad([w], weight_decay=0.1))
    with pytest.raises(ValueError, match="SGD, Adam, AdamW and Lion alone"):
        equilibrium(optim.RMSprop([w], weight_decay=0.1))
    with pytest.raises(TypeError, match="an optimizer, or a rule"):
        equilibrium("sgd")
