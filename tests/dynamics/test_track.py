"""The tracker sees what happens, with every optimizer and every manner of training, and changes nothing."""

import numpy as np
import pytest
import torch
from torch import nn, optim

from normgeom import effective_learning_rate, track
from tests.dynamics.runs import CASES, INPUTS, Lion, Oracle, batches, network, train

MATRIX = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "fused SGD": lambda p: optim.SGD(p, lr=0.1, fused=True),
    "Adam": lambda p: optim.Adam(p, lr=0.01),
    "foreach Adam": lambda p: optim.Adam(p, lr=0.01, foreach=True, amsgrad=True),
    "fused AdamW": lambda p: optim.AdamW(p, lr=0.01, fused=True),
    "NAdam": lambda p: optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: optim.RAdam(p, lr=0.01),
    "Adamax": lambda p: optim.Adamax(p, lr=0.01),
    "Adadelta": lambda p: optim.Adadelta(p, lr=1.0),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.01),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.01),
    "ASGD": lambda p: optim.ASGD(p, lr=0.01),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01),
    "Rprop": lambda p: optim.Rprop(p, lr=0.01),
    "Lion": lambda p: Lion(p, lr=0.01),
}
MODES = ("plain", "clipped", "accumulated", "amp", "scheduler")
COLUMNS = ("norm", "gradient_norm", "cosine", "update_norm", "relative_update", "angular_update")


def state(optimizer):
    """All numbers of an optimizer's state, in order."""
    saved = optimizer.state_dict()
    return [v for entry in saved["state"].values() for v in entry.values()], saved["param_groups"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", MATRIX.values(), ids=MATRIX)
def test_what_is_tracked_is_what_happened(make, mode):
    net = network()
    optimizer, oracle = make(net.parameters()), Oracle("0.weight")
    with track(net, optimizer) as tracker:
        train(net, optimizer, mode=mode, seen=oracle)
    rows = tracker.frame().query("block == '0.weight'")
    assert rows["step"].tolist() == [1, 2, 3, 4]
    for name in COLUMNS:
        wanted = [row[name] for row in oracle.rows]
        np.testing.assert_allclose(rows[name], wanted, rtol=2e-5, atol=3e-7, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", MATRIX.values(), ids=MATRIX)
def test_the_run_is_bit_identical(make, mode):
    found = []
    for watched in (False, True):
        torch.manual_seed(3)
        net = network()
        net.insert(3, nn.Dropout(0.3))
        optimizer = make(net.parameters())
        if watched:
            with track(net, optimizer, batch=batches(1)[0][0]):
                losses = train(net, optimizer, mode=mode)
        else:
            losses = train(net, optimizer, mode=mode)
        found.append((losses, list(net.state_dict().values()), *state(optimizer), torch.rand(3)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_muon_and_other_matrix_optimizers():
    net = network()
    optimizer = optim.Muon([net[0].weight], lr=0.1)
    oracle = Oracle("0.weight")
    with track(net, optimizer) as tracker:
        train(net, optimizer, seen=oracle)
    assert tracker.labels == ["0.weight"]
    wanted = [row["angular_update"] for row in oracle.rows]
    np.testing.assert_allclose(tracker.frame()["angular_update"], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "make", [lambda p: optim.LBFGS(p, lr=0.1, max_iter=5), MATRIX["SGD"]], ids=["LBFGS", "SGD"]
)
def test_a_closure_gives_the_gradient_at_the_weights_before(make):
    x, y = (part[0] for part in batches(1))
    runs = []
    for watched in (False, True):
        net = network()
        optimizer, calls = make(net.parameters()), []

        def closure(net=net, optimizer=optimizer, calls=calls):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            calls.append(net[0].weight.grad.clone())
            return loss

        if watched:
            with track(net, optimizer) as tracker:
                optimizer.step(closure)
                optimizer.step(closure=closure)
        else:
            optimizer.step(closure)
            optimizer.step(closure)
        runs.append((net, calls))
    rows = tracker.frame().query("block == '0.weight'")
    assert rows["gradient_norm"].iloc[0] == pytest.approx(float(calls[0].norm()), rel=1e-5)
    torch.testing.assert_close(runs[0][0].state_dict(), runs[1][0].state_dict(), rtol=0, atol=0)


def test_sparse_gradients():
    net = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2))
    optimizer, oracle = optim.SparseAdam([net[0].weight], lr=0.1), Oracle("0.weight")
    ids = torch.tensor([[1, 2, 2], [2, 5, 1]])
    with track(net, optimizer) as tracker:
        for _ in range(2):
            optimizer.zero_grad()
            net(ids).square().sum().backward()
            oracle(net, "before")
            optimizer.step()
            oracle(net, "after")
    for name in COLUMNS:
        wanted = [row[name] for row in oracle.rows]
        np.testing.assert_allclose(tracker.frame()[name], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_scaler_leaves_out_is_noticed(fused):
    net = network()
    optimizer = optim.Adam(net.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with track(net, optimizer, scaler=scaler) as tracker:
        for k in range(3):
            optimizer.zero_grad()
            scaler.scale(net(batches(1)[0][0]).mean() * (torch.inf if k == 1 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    rows = tracker.frame().query("block == '0.weight'")
    assert rows["skipped"].tolist() == [False, True, False]
    assert (rows["update_norm"] > 0).tolist() == [True, False, True]
    assert "step" not in vars(scaler)


@pytest.mark.parametrize("first", [0, 1])
def test_watchers_of_one_scaler_close_in_any_order(first):
    net = network()
    optimizer, scaler = optim.Adam(net.parameters(), lr=0.01), torch.amp.GradScaler("cpu", init_scale=64.0)
    trackers = [track(net, optimizer, scaler=scaler).__enter__() for _ in range(2)]
    for k in (first, 1 - first):
        optimizer.zero_grad()
        scaler.scale(net(batches(1)[0][0]).mean() * torch.inf).backward()
        scaler.step(optimizer)
        scaler.update()
        trackers[k].__exit__(None, None, None)
    assert [sum(t.frame()["skipped"]) // 5 for t in trackers] == [1 + first, 2 - first]
    assert "step" not in vars(scaler)


def test_the_scale_of_a_fused_optimizer_is_taken_off():
    norms = []
    for fused in (False, True):
        net = network()
        optimizer = optim.Adam(net.parameters(), lr=0.01, fused=fused)
        with track(net, optimizer) as tracker:
            train(net, optimizer, mode="amp")
        norms.append(tracker.frame()["gradient_norm"].to_numpy())
    np.testing.assert_allclose(norms[1], norms[0], rtol=1e-4, atol=1e-7)


def test_rates_follow_groups_and_schedule():
    net = network()
    groups = [{"params": [net[0].weight], "lr": 0.4}, {"params": net[3].parameters(), "lr": 0.8}]
    optimizer = optim.SGD(groups)
    with track(net, optimizer) as tracker:
        train(net, optimizer, mode="scheduler", steps=3)
    frame = tracker.frame().set_index("block")
    assert frame.loc["0.weight", "learning_rate"].tolist() == [0.4, 0.2, 0.1]
    assert frame.loc["3.weight", "learning_rate"].tolist() == [0.8, 0.4, 0.2]
    rates = frame["learning_rate"] / frame["norm"] ** 2
    np.testing.assert_allclose(frame["effective_learning_rate"], rates)
    net2 = network()
    first = effective_learning_rate(optim.SGD(net2.parameters(), lr=0.4), net2[0].weight)
    assert frame.loc["0.weight", "effective_learning_rate"].iloc[0] == pytest.approx(first)


def test_every_logs_the_first_step_and_every_nth_after_it():
    net, other = network(), network()
    one, two = (optim.SGD(n.parameters(), lr=0.1) for n in (net, other))
    with track(net, one, every=3) as sparse, track(other, two) as dense:
        train(net, one, steps=8)
        train(other, two, steps=8)
    wanted = dense.frame().query("step in (1, 4, 7)").reset_index(drop=True)
    assert sparse.frame().equals(wanted)
    assert repr(sparse) == "Tracker(5 blocks, 8 steps seen, 3 logged)"


def test_column_sums():
    net = network(dtype=torch.float64)
    optimizer = optim.AdamW(net.parameters(), lr=0.1)
    sums = [net[0].weight.detach().sum(0)]
    with track(net, optimizer) as tracker:
        train(
            net, optimizer, seen=lambda n, when: when == "after" and sums.append(n[0].weight.detach().sum(0))
        )
    frame = tracker.frame().set_index("block")
    np.testing.assert_allclose(frame.loc["0.weight", "column_sum"], [float(s.norm()) for s in sums[:-1]])
    drift = [float((s - sums[0]).norm()) for s in sums[:-1]]
    np.testing.assert_allclose(frame.loc["0.weight", "column_drift"], drift, atol=1e-12)
    assert frame.loc["3.bias", "column_sum"].isna().all()


def test_which_blocks_are_scale_invariant_stands_in_the_table():
    net = network(eps=1e-5)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with track(net, optimizer, batch=torch.randn(CASES, INPUTS)) as tracker:
        train(net, optimizer, steps=1)
    kinds = tracker.frame().set_index("block")["scale_invariant"].to_dict()
    assert kinds == {
        "0.weight": "whole",
        "1.weight": "none",
        "1.bias": "none",
        "3.weight": "none",
        "3.bias": "none",
    }
    untested = track(net, optimizer)
    assert untested.scale_invariance is None


def test_long_runs_are_kept_beyond_what_waits_on_the_device():
    w = nn.Linear(2, 1, bias=False)
    optimizer = optim.SGD(w.parameters(), lr=1e-3)
    with track(w, optimizer) as tracker:
        for _ in range(600):
            optimizer.zero_grad()
            w(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    frame = tracker.frame()
    assert frame["step"].tolist() == list(range(1, 601))
    np.testing.assert_allclose(frame["update_norm"], 1e-3 * 2**0.5, rtol=1e-3)
