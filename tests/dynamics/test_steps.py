"""When a tracker looks: once a step, whatever the step does, and never after it is closed."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn, optim

from normgeom import track
from tests.dynamics.runs import network, train


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
