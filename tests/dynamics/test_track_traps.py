"""What trackers get wrong: where gradients are read, undefined ratios, wrong axes, traces left behind."""

import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn, optim

import normgeom as ng
from normgeom import Block, track
from tests.dynamics.runs import batches, network, train


def hooks(optimizer, model):
    """How many hooks hang on an optimizer and a model."""
    on_model = sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())
    return len(optimizer._optimizer_step_pre_hooks), len(optimizer._optimizer_step_post_hooks), on_model


def test_accumulated_gradients_are_read_once_a_step():
    """DYN-07: 4 backward passes, 2 steps."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer, x, wanted = optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 3), []
    with track(model, optimizer, blocks=["weight"]) as tracker:
        for k in range(4):
            (model(x[k]).sum() / 2).backward()
            if k % 2:
                wanted.append(float(model.weight.grad.norm()))
                optimizer.step()
                optimizer.zero_grad()
    assert model.weight.grad is None
    np.testing.assert_allclose(tracker.frame()["gradient_norm"], wanted, rtol=1e-6)
    np.testing.assert_allclose(wanted, [1.857606, 0.729767], rtol=1e-5)


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


class Decaying(optim.SGD):
    """An optimizer that steps its parent, and then moves the weights once more."""

    def step(self, closure=None):
        loss = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for value in group["params"]:
                    value.mul_(0.5)
        return loss


def test_a_step_within_a_step_is_one_step():
    optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)  # from now on SGD.step runs the hooks too
    w = nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = Decaying([w], lr=1.0)
    with track(nn.ParameterDict({"w": w}), optimizer) as tracker:
        w.grad = torch.zeros(2)
        optimizer.step()
        optimizer.step()
    assert tracker.frame()["step"].tolist() == [1, 2]
    np.testing.assert_allclose(tracker.frame()["relative_update"], 0.5)


class Failing(optim.SGD):
    """An optimizer whose second step raises."""

    calls = 0

    def step(self, closure=None):
        self.calls += 1
        if self.calls == 2:
            raise FloatingPointError("the second step")
        return super().step(closure)


def test_a_step_that_raises_is_forgotten():
    w = nn.Parameter(torch.ones(2))
    optimizer = Failing([w], lr=0.1)
    with track(nn.ParameterDict({"w": w}), optimizer) as tracker:
        for k in range(3):
            w.grad = torch.ones(2)
            if k == 1:
                with pytest.raises(FloatingPointError):
                    optimizer.step()
            else:
                optimizer.step()
    np.testing.assert_allclose(tracker.frame()["update_norm"], 0.1 * 2**0.5, rtol=1e-5)
    assert tracker.frame()["step"].tolist() == [1, 3]


def _fail_if(hooked):
    """Raise the error that is meant only if the hooks are there."""
    assert hooked
    return 1 / 0


def test_nothing_is_left_behind_even_by_an_error():
    net = network()
    optimizer = optim.Adam(net.parameters())
    scaler = torch.amp.GradScaler("cpu")
    found = hooks(optimizer, net)
    tracker = track(net, optimizer, summed_inputs={"0.weight": "1"}, scaler=scaler)
    with pytest.raises(ZeroDivisionError), tracker:
        _fail_if(hooks(optimizer, net) != found)
    assert hooks(optimizer, net) == found
    pickle.dumps((net, optimizer, scaler))


def test_trackers_can_be_nested_and_reopened():
    net = network()
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    with track(net, optimizer) as outer:
        train(net, optimizer, steps=2)
        with track(net, optimizer) as inner:
            train(net, optimizer, steps=2)
    a, b = outer.frame().query("step > 2"), inner.frame()
    np.testing.assert_array_equal(a["angular_update"], b["angular_update"])
    with outer:
        train(net, optimizer, steps=1)
    assert outer.frame()["step"].max() == 5
    with outer, pytest.raises(RuntimeError, match="open already"):
        outer.__enter__()


def test_float16_weights_are_measured_in_float32():
    w = nn.Parameter(torch.full((4,), 200.0, dtype=torch.float16))
    optimizer = optim.SGD([w], lr=1.0)
    with track(nn.ParameterDict({"w": w}), optimizer) as tracker:
        w.grad = torch.ones_like(w)
        optimizer.step()
    row = tracker.frame().iloc[0]
    assert (row["norm"], row["update_norm"]) == (400.0, 2.0)


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
