"""The effective learning rate follows the definition of each optimizer, or is not given."""

import math

import pytest
import torch
from torch import optim

from normgeom import NormalizedRule, effective_learning_rate
from normgeom.dynamics import rule_of
from tests.dynamics.runs import Lion

NORM = 5.0
DEFINED = {
    "SGD": (lambda p: optim.SGD(p, lr=0.5), 0.5 / 25),
    "momentum": (lambda p: optim.SGD(p, lr=0.5, momentum=0.9), 5 / 25),
    "nesterov": (lambda p: optim.SGD(p, lr=0.5, momentum=0.9, nesterov=True), 5 / 25),
    "dampening": (lambda p: optim.SGD(p, lr=0.5, momentum=0.9, dampening=0.9), 0.5 / 25),
    "dampening of no momentum": (lambda p: optim.SGD(p, lr=0.5, dampening=0.5), 0.5 / 25),
    "Adam": (lambda p: optim.Adam(p, lr=0.5), 0.1),
    "AdamW": (lambda p: optim.AdamW(p, lr=0.5), 0.1),
    "NAdam": (lambda p: optim.NAdam(p, lr=0.5), 0.1),
    "RAdam": (lambda p: optim.RAdam(p, lr=0.5), 0.1),
    "Adamax": (lambda p: optim.Adamax(p, lr=0.5), 0.1),
    "SparseAdam": (lambda p: optim.SparseAdam(p, lr=0.5), 0.1),
    "Muon": (lambda p: optim.Muon(p, lr=0.5), 0.1),
    "RMSprop": (lambda p: optim.RMSprop(p, lr=0.5, momentum=0.5), 0.2),
    "Lion": (lambda p: Lion(p, lr=0.5), 0.1),
    "tensor rate": (lambda p: optim.Adam(p, lr=torch.tensor(0.5)), 0.1),
}
UNDEFINED = {
    "earlier steps": optim.Adadelta,
    "all squared gradients": optim.Adagrad,
    "relative to the weights": optim.Adafactor,
    "schedule inside": optim.ASGD,
    "step of its own": optim.Rprop,
    "curvature of the loss": optim.LBFGS,
    "largest squared gradient": lambda p: optim.Adam(p, amsgrad=True),
}


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))


@pytest.mark.parametrize(("make", "wanted"), DEFINED.values(), ids=DEFINED)
def test_each_optimizer_has_its_definition(make, wanted, weight):
    assert effective_learning_rate(make([weight]), weight) == pytest.approx(wanted)


@pytest.mark.parametrize(("reason", "make"), UNDEFINED.items(), ids=UNDEFINED)
def test_where_there_is_none_it_is_nan_with_a_reason(reason, make, weight):
    optimizer = make([weight])
    assert math.isnan(effective_learning_rate(optimizer, weight))
    assert reason in rule_of(optimizer, optimizer.param_groups[0]).reason


def test_the_rate_of_momentum_is_that_of_a_long_run_of_one_gradient(weight):
    optimizer = optim.SGD([weight], lr=0.5, momentum=0.8, dampening=0.3)
    start = weight.detach().clone()
    for k in range(400):
        weight.grad = torch.ones_like(weight) if k == 1 else torch.zeros_like(weight)
        optimizer.step()
    moved = float((start - weight.detach())[0, 0])
    weight.data.copy_(start)
    assert moved == pytest.approx(effective_learning_rate(optimizer, weight) * NORM**2, rel=1e-5)


def test_groups_parts_and_unknown_optimizers(weight):
    other = torch.nn.Parameter(torch.ones(4))
    optimizer = optim.SGD([{"params": [weight], "lr": 1.0}, {"params": [other], "lr": 2.0}])
    assert effective_learning_rate(optimizer, other) == pytest.approx(0.5)
    assert effective_learning_rate(optimizer, other, part=other[:1]) == pytest.approx(2.0)
    assert effective_learning_rate(optimizer, weight, rule=NormalizedRule(1.0)) == pytest.approx(0.2)


def test_a_zero_block_and_a_stranger():
    zero = torch.nn.Parameter(torch.zeros(3))
    optimizer = optim.SGD([zero], lr=1.0)
    assert math.isnan(effective_learning_rate(optimizer, zero))
    with pytest.raises(ValueError, match=r"of shape \(2,\) must be one of the optimizer's"):
        effective_learning_rate(optimizer, torch.ones(2))


@pytest.mark.parametrize("make", [optim.SGD, optim.RMSprop])
def test_a_momentum_that_never_forgets_has_no_rate(make):
    w = torch.nn.Parameter(torch.ones(2))
    assert math.isnan(effective_learning_rate(make([w], lr=0.5, momentum=1.0), w))


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_the_squares_of_float32_weights_neither_vanish_nor_overflow(size):
    w = torch.nn.Parameter(torch.full((4,), size))
    found = effective_learning_rate(optim.Adam([w], lr=0.5), w)
    assert found == pytest.approx(0.25 / size, rel=1e-6)


def test_wrong_arguments_are_named():
    weight = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(TypeError, match=r"takes \(a torch.optim.Optimizer, one of its parameters\); got str"):
        effective_learning_rate("sgd", weight)
    with pytest.raises(TypeError, match="got SGD and float"):
        effective_learning_rate(torch.optim.SGD([weight], lr=0.1), 3.0)
