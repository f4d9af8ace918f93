"""What trackers get wrong: undefined ratios, signs and types, buffers that change, arguments."""

import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn, optim

import normgeom as ng
from normgeom import Block, track
from tests.dynamics.runs import batches, network


def test_ratios_of_a_zero_block_are_nan_and_counted():
    """DYN-09: the first step moves the bias to (-0.1, -0.2, -0.2), and has no ratio."""
    model = nn.Linear(3, 3)
    nn.init.zeros_(model.bias)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with track(model, optimizer) as tracker:
        for _ in range(2):
            optimizer.zero_grad()
            (model(torch.ones(1, 3)) @ torch.tensor([1.0, 2.0, 2.0])).sum().backward()
            optimizer.step()
    rows = tracker.frame().query("block == 'bias'")
    np.testing.assert_allclose(model.bias.detach(), [-0.2, -0.4, -0.4])
    ratios = ["cosine", "relative_update", "angular_update", "effective_learning_rate"]
    assert rows[ratios].isna().all(axis=1).tolist() == [True, False]
    assert tracker.undefined().loc["bias"].tolist() == [1, 1, 1, 1]
    assert tracker.undefined().loc["weight"].tolist() == [0, 0, 0, 0]
    assert not np.isinf(tracker.frame().select_dtypes("number")).any(axis=None)


def test_a_block_that_becomes_zero_has_no_angle():
    w = nn.Parameter(torch.ones(2))
    model = nn.ParameterDict({"w": w})
    optimizer = optim.SGD([w], lr=1.0)
    with track(model, optimizer) as tracker:
        w.grad = torch.ones(2)
        optimizer.step()
    assert tracker.frame()["relative_update"].tolist() == [1.0]
    assert tracker.frame()["angular_update"].isna().all()


def test_a_block_without_gradient():
    net = network()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with track(net, optimizer) as tracker:
        net[3](torch.ones(1, 8)).sum().backward()
        optimizer.step()
    row = tracker.frame().set_index("block").loc["0.weight"]
    assert math.isnan(row["gradient_norm"])
    assert math.isnan(row["cosine"])
    assert row["update_norm"] == 0


def test_the_cosine_of_weight_and_gradient_keeps_its_sign():
    """DYN-04: without an absolute value, an antiparallel gradient passes for that of an invariant weight."""
    w = nn.Parameter(torch.randn(64, generator=torch.Generator().manual_seed(0)))
    optimizer = optim.SGD([w], lr=0.1)
    with track(nn.ParameterDict({"w": w}), optimizer) as tracker:
        w.grad = -w.detach()
        optimizer.step()
    cosine, threshold = tracker.frame()["cosine"][0], 0.1 / 64**0.5
    assert threshold == 0.0125
    assert cosine == pytest.approx(-1, abs=1e-6)
    assert cosine < threshold < abs(cosine)


def test_one_small_cosine_is_weak_evidence():
    """DYN-04: of unrelated gradients 2 Phi(0.1) - 1 = 7.97 % pass; rescaling the weight lets none pass."""
    model = nn.Linear(64, 20000, bias=False)
    generator, optimizer = torch.Generator().manual_seed(0), optim.SGD(model.parameters(), lr=0.1)
    with track(model, optimizer, blocks=[ng.rows("weight")]) as tracker:
        model.weight.grad = torch.randn(20000, 64, generator=generator)
        optimizer.step()
    passed = tracker.frame()["cosine"].abs() < 0.1 / 64**0.5
    assert passed.mean() == pytest.approx(0.0797, abs=3 * (0.0797 * 0.9203 / 20000) ** 0.5)
    small = nn.Linear(64, 3, bias=False)
    assert not ng.scale_invariance(small, torch.randn(5, 64, generator=generator))["weight"].holds


def test_float16_weights_are_measured_in_float32():
    w = nn.Parameter(torch.full((4,), 200.0, dtype=torch.float16))
    optimizer = optim.SGD([w], lr=1.0)
    with track(nn.ParameterDict({"w": w}), optimizer) as tracker:
        w.grad = torch.ones_like(w)
        optimizer.step()
    row = tracker.frame().iloc[0]
    assert (row["norm"], row["update_norm"]) == (400.0, 2.0)


def test_batch_norm_buffers_and_modes_stay():
    net = nn.Sequential(nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 3))
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    saved = pickle.dumps(net.state_dict())
    options = {"nats": True, "curvature": True, "family": ng.Categorical()}
    with track(net, optimizer, batch=batches(1)[0][0], **options):
        pass
    assert pickle.dumps(net.state_dict()) == saved
    assert net.training


WRONG = {
    "every": ({"every": 0}, ValueError, "at least 1; got 0"),
    "family": ({"nats": True}, ValueError, "need batch= and family="),
    "string": ({"blocks": "0.weight"}, TypeError, r"write \['0.weight'\]"),
    "name": ({"blocks": ["weight"]}, ValueError, "no parameter 'weight'; it has 0.weight"),
    "rows": ({"blocks": [Block("0.weight", slice(8, 9))]}, ValueError, "has 8 rows along axis 0"),
    "parts": ({"blocks": [ng.gates("0.weight", 3)]}, ValueError, "cut into 3 equal parts"),
    "axis": ({"blocks": [Block("3.bias", axis=1)]}, ValueError, "its axis cannot be 1"),
    "twice": ({"blocks": ["0.weight", "0.weight"]}, ValueError, "0.weight more than once"),
    "module": ({"summed_inputs": {"0.weight": "9"}}, ValueError, "there is no '9'"),
    "block": ({"summed_inputs": {"weight": "1"}}, ValueError, "'weight' is not"),
}


@pytest.mark.parametrize(("options", "kind", "text"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(options, kind, text):
    net = network()
    with pytest.raises(kind, match=text):
        track(net, optim.SGD(net.parameters()), **options)


def test_a_complex_block_is_refused_and_others_are_tracked_beside_it():
    net = nn.Linear(3, 2, dtype=torch.complex64)
    net.real = nn.Parameter(torch.ones(2))
    optimizer = optim.SGD(net.parameters())
    with pytest.raises(TypeError, match=r"must be of real parameters; weight is torch.complex64"):
        track(net, optimizer)
    assert track(net, optimizer, blocks=["real"]).labels == ["real"]


def test_strangers_are_named():
    net = network()
    with pytest.raises(ValueError, match="it holds none: was it made from another model"):
        track(net, optim.SGD(network().parameters()))
    with pytest.raises(ValueError, match=r"of shape \(8, 6\) must be one of the optimizer's"):
        track(net, optim.SGD(net[3].parameters()), blocks=["0.weight"])
    with pytest.raises(TypeError, match="got Sequential and Linear"):
        track(net, nn.Linear(1, 1))
    assert track(net, optim.SGD(net.parameters())).rule_reason("0.weight") is None
    reason = track(net, optim.Rprop(net.parameters())).rule_reason("0.weight")
    assert "grows and shrinks" in reason
    with pytest.raises(ValueError, match=r"must be one of 0\.weight, .*; got 'nope'"):
        track(net, optim.SGD(net.parameters())).rule_reason("nope")
