"""Blocks that are parts of a tensor: output units, gates, heads."""

import math

import numpy as np
import pytest
import torch
from torch import nn, optim

import normgeom as ng
from normgeom import Block, track
from tests.dynamics.runs import network, train

UNITS = [
    (nn.Linear(3, 4), 0),
    (nn.Conv2d(3, 4, 3), 0),
    (nn.ConvTranspose2d(3, 4, 3), 1),
    (nn.Embedding(4, 3), 0),
    (nn.ConvTranspose1d(2, 4, 3), 1),
]


@pytest.mark.parametrize(("module", "axis"), UNITS)
def test_one_norm_for_every_output_unit(module, axis):
    """DYN-05."""
    optimizer = optim.SGD(module.parameters(), lr=0.1)
    wanted = module.weight.detach().movedim(axis, 0).flatten(1).norm(dim=1)
    with track(module, optimizer, blocks=[ng.rows("weight")]) as tracker:
        module.weight.grad = torch.ones_like(module.weight)
        optimizer.step()
    np.testing.assert_allclose(tracker.frame()["norm"], wanted, rtol=1e-6)
    assert len(tracker.labels) == 4


@pytest.mark.parametrize(("module", "axis"), UNITS[:3])
def test_a_unit_whose_norm_doubles_moves_its_own_output_alone(module, axis):
    """DYN-05: the rows are those of output units."""
    x = torch.randn(2, 3, *(5, 5) * (module.weight.ndim == 4), generator=torch.Generator().manual_seed(0))
    optimizer, outputs = optim.SGD(module.parameters(), lr=1.0), [module(x).detach()]
    with track(module, optimizer, blocks=[ng.rows("weight")]) as tracker:
        module.weight.grad = torch.zeros_like(module.weight)
        module.weight.grad.select(axis, 2).copy_(-module.weight.detach().select(axis, 2))
        optimizer.step()
        outputs.append(module(x).detach())
    moved = (outputs[1] - outputs[0]).movedim(-1 if x.ndim == 2 else 1, 0).flatten(1).any(1)
    assert moved.tolist() == [False, False, True, False]
    np.testing.assert_allclose(tracker.frame()["relative_update"], [0, 0, 1, 0], atol=1e-6)


def test_gates_and_heads():
    lstm = nn.LSTM(3, 5)
    optimizer = optim.SGD(lstm.parameters(), lr=0.1)
    blocks = [
        ng.gates("weight_ih_l0", 4),
        ng.heads("weight_hh_l0", 5, axis=1),
        Block("bias_ih_l0", rows=slice(5, 10)),
        "weight_hh_l0",
    ]
    with track(lstm, optimizer, blocks=blocks) as tracker:
        for value in lstm.parameters():
            value.grad = torch.randn_like(value)
        before = {k: v.detach().clone() for k, v in lstm.named_parameters()}
        optimizer.step()
    frame = tracker.frame().set_index("block")
    gate = before["weight_ih_l0"][10:15]
    assert frame.loc["weight_ih_l0[10:15]", "norm"] == pytest.approx(float(gate.norm()), rel=1e-6)
    wanted = float(ng.angular_update(gate, lstm.weight_ih_l0.detach()[10:15]))
    assert frame.loc["weight_ih_l0[10:15]", "angular_update"] == pytest.approx(wanted, rel=1e-4)
    head = before["weight_hh_l0"][:, 2]
    assert frame.loc["weight_hh_l0[:, 2]", "norm"] == pytest.approx(float(head.norm()), rel=1e-6)
    update = lstm.weight_hh_l0.detach()[:, 2] - head
    assert frame.loc["weight_hh_l0[:, 2]", "update_norm"] == pytest.approx(float(update.norm()), rel=1e-5)
    assert frame.loc["bias_ih_l0[5:10]", "norm"] == pytest.approx(float(before["bias_ih_l0"][5:10].norm()))
    column = frame.loc["weight_ih_l0[10:15]", "column_sum"]
    assert column == pytest.approx(float(gate.sum(0).norm()), rel=1e-5)
    whole = float(ng.angular_update(before["weight_hh_l0"], lstm.weight_hh_l0))
    assert frame.loc["weight_hh_l0", "angular_update"] == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize("blocks", [None, [ng.rows("0.weight"), "3.weight"], [ng.gates("0.weight", 2)]])
def test_weights_that_change_their_type_are_followed(blocks):
    net = network()
    optimizer, first = optim.SGD(net.parameters(), lr=0.1), net[0].weight.detach().sum(0)
    with track(net, optimizer, blocks=blocks) as tracker:
        train(net, optimizer, steps=2)
        net.double()
        before = net[0].weight.detach().clone()
        train(net, optimizer, steps=1)
    rows = tracker.frame().query("step == 3").set_index("block")
    norms = rows.loc[[label for label in tracker.labels if label.startswith("0.")], "norm"]
    assert math.hypot(*norms) == pytest.approx(float(before.norm()), rel=1e-14)
    if blocks is None:
        drift = float((before.sum(0) - first).norm())
        assert rows.loc["0.weight", "column_drift"] == pytest.approx(drift, rel=1e-4)
