"""What the symmetries of a map conserve: every law holds to rounding, and every fault is seen."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn, optim

import normgeom as ng
from tests.dynamics.runs import network
from tests.dynamics.test_conservation import Faulty, WrongDecay
from tests.golden.scan_models import REFERENCES, reference


@pytest.fixture(scope="module")
def maps():
    return {name: ng.scan(*reference(name)) for name in REFERENCES}


def watched(model, batch, found, optimizer, *, steps=8, schedule=None):
    """The laws of a run towards random targets."""
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(model(batch).shape, generator=generator, dtype=torch.float64)
    scheduler = schedule and optim.lr_scheduler.LambdaLR(optimizer, schedule)
    with ng.conservation(model, optimizer, symmetries=found) as laws:
        for _ in range(steps):
            optimizer.zero_grad()
            (model(batch).tanh() - target).square().mean().backward()
            optimizer.step()
            if scheduler:
                scheduler.step()
    return laws


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", REFERENCES)
def test_every_symmetry_has_a_law_and_it_holds_to_rounding(maps, name, decay):
    model, batch = reference(name)
    found = maps[name]
    laws = watched(model, batch, found, optim.SGD(model.parameters(), lr=0.05, weight_decay=decay))
    report = laws.report()
    assert all(one.holds is True for one in report), report
    assert max(one.tolerance for one in report) < 1e-6
    named = {(one.law, one.block) for one in report}
    assert named >= {("joint norms", one.label) for one in found.joint}
    assert named >= {("joint sums", one.label) for one in found.joint_shifts}
    assert named >= {("norm growth", one.block) for one in found.single if not one.dead}
    assert named >= {("dead block", one.block) for one in found.dead}
    assert [text.split(": ")[0] for text in laws.left_out] == [one.label for one in found.absorbed_shifts]


def test_a_joint_law_is_its_formula(maps):
    model, batch = reference("pre-LN")
    own, k = dict(model.named_parameters()), dict(maps["pre-LN"].joint[0].exponents)
    optimizer = optim.SGD(own.values(), lr=0.05)
    laws = ng.conservation(model, optimizer, symmetries=maps["pre-LN"])
    said, before = 0.0, sum(power * float(own[n].detach().square().sum()) for n, power in k.items())
    with laws:
        for _ in range(3):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            said += 0.05**2 * sum(power * float(own[n].grad.square().sum()) for n, power in k.items())
            optimizer.step()
    after = sum(power * float(own[n].detach().square().sum()) for n, power in k.items())
    check = laws.report()["joint norms", maps["pre-LN"].joint[0].label]
    assert (check.predicted, check.measured) == pytest.approx((said, after - before), rel=1e-9)


@pytest.mark.parametrize("name", ["pre-LN", "LN-LSTM", "batch norm"])
def test_rates_and_decays_may_differ_and_follow_a_schedule(maps, name):
    model, batch = reference(name)
    groups = [
        {"params": [p], "lr": 0.01 * (1 + k % 3), "weight_decay": 0.1 * (k % 2)}
        for k, p in enumerate(model.parameters())
    ]
    laws = watched(model, batch, maps[name], optim.SGD(groups), schedule=lambda step: step / 5)
    assert all(one.holds is True for one in laws.report()), laws.report()


def test_the_quantity_has_the_shares_of_the_rates(maps):
    model, batch = reference("group norm")
    own = dict(model.named_parameters())
    groups = [
        {"params": [p for n, p in own.items() if n != "c2.bias"]},
        {"params": [own["c2.bias"]], "lr": 0.01},
    ]
    laws = watched(model, batch, maps["group norm"], optim.SGD(groups, lr=0.03), steps=1)
    wanted = "‖c2.weight‖² + 3 ‖c2.bias‖²"
    assert laws.report()["joint norms", "c2.weight^+1 c2.bias^+1"].quantity == wanted


def test_ratios_of_rates_that_change_leave_no_law(maps):
    model, batch = reference("group norm")
    own = dict(model.named_parameters())
    groups = [{"params": [p for n, p in own.items() if n != "c2.bias"]}, {"params": [own["c2.bias"]]}]
    found, optimizer = maps["group norm"], optim.SGD(groups, lr=0.03)
    laws = watched(model, batch, found, optimizer, schedule=[lambda t: 1.0, lambda t: 0.5**t])
    check = laws.report()["joint norms", "c2.weight^+1 c2.bias^+1"]
    assert check.holds is None
    assert check.reason == "the ratio of its blocks' learning rates changed, and what is conserved with it"
    still = optim.SGD([groups[0], {"params": [own["c2.bias"]], "lr": 0.0}], lr=0.03)
    check = watched(model, batch, found, still).report()["joint norms", "c2.weight^+1 c2.bias^+1"]
    assert check.reason == "one of its blocks has learning rate 0: nothing is conserved"


def test_momentum_keeps_the_laws_of_sums(maps):
    model, batch = reference("pre-LN")
    optimizer = optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.1)
    for one in watched(model, batch, maps["pre-LN"], optimizer).report():
        assert one.holds is (None if "norms" in one.law else True), one


def test_a_wrong_exponent_is_rejected(maps):
    model, batch = reference("pre-LN")
    first = maps["pre-LN"].joint[0]
    joint = dataclasses.replace(first, exponents={**first.exponents, "nf.weight": -2})
    found = dataclasses.replace(maps["pre-LN"], joint=(joint,))
    report = watched(model, batch, found, optim.SGD(model.parameters(), lr=0.05)).report()
    bad = report["joint norms", joint.label]
    assert bad.holds is False
    assert "not scale invariant" in bad.reason


@pytest.mark.parametrize(("make", "says"), [(Faulty, "learning rate 0.1001"), (WrongDecay, "decay 0.0101")])
def test_an_optimizer_that_does_something_else_is_rejected(maps, make, says):
    model, batch = reference("group norm")
    optimizer = make(model.parameters(), lr=0.1, weight_decay=0.1)
    report = watched(model, batch, maps["group norm"], optimizer).report()
    bad = [one for one in report if "norm" in one.law]
    assert len(bad) == 5
    assert all(one.holds is False and says in one.reason for one in bad)


def test_a_shift_of_the_bias_by_hand_is_seen(maps):
    model, batch = reference("LN-LSTM")
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def nudge(*_):
        with torch.no_grad():
            model.lx.bias.add_(1e-9)

    optimizer.register_step_post_hook(nudge)
    report = watched(model, batch, maps["LN-LSTM"], optimizer).report()
    assert [one.holds for one in report if one.law == "joint sums"] == [False, False]


def test_a_dead_block_that_moves_is_seen(maps):
    model, batch = reference("pre-LN")
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def push(*_):
        model.b[0].a.k.bias.grad.add_(1e-9)

    optimizer.register_step_pre_hook(push)
    report = watched(model, batch, maps["pre-LN"], optimizer).report()
    assert report["dead block", "b.0.a.k.bias"].holds is False
    assert report["dead block", "b.1.a.k.bias"].holds is True


def test_what_eps_breaks_is_said_and_not_judged():
    net = network(eps=1e-2, dtype=torch.float64)
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    report = watched(net, x, ng.scan(net, x), optim.SGD(net.parameters(), lr=0.1)).report()
    check = report["norm growth", "0.weight"]
    assert check.holds is None
    assert check.reason == f"the model's eps breaks the symmetry, and the law by {check.error:.1e}"
    assert report["column sums", "0.weight"].holds is True


class Narrow(nn.Module):
    """A layer norm that computes in float32."""

    def forward(self, x):
        return nn.functional.layer_norm(x.float(), x.shape[-1:], eps=0.0).double()


def test_float32_inside_of_the_model_is_said_and_not_judged():
    net = nn.Sequential(nn.Linear(6, 8, bias=False), Narrow(), nn.Tanh(), nn.Linear(8, 3)).double()
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = ng.scan(net, x)
    check = watched(net, x, found, optim.SGD(net.parameters(), lr=0.1)).report()["norm growth", "0.weight"]
    assert check.holds is None
    assert "rounded as by float32 inside" in check.reason
    with ng.conservation(net, optimizer := optim.SGD(net.parameters(), lr=0.1), blocks=["0.weight"]) as laws:
        net(x).square().mean().backward()
        optimizer.step()
    assert laws.report()["norm growth", "0.weight"].holds is False


def test_blocks_that_do_not_train_take_their_joint_laws_with_them(maps):
    model, batch = reference("group norm")
    own = {name: value for name, value in model.named_parameters() if name != "c2.bias"}
    laws = watched(model, batch, maps["group norm"], optim.SGD(own.values(), lr=0.1))
    assert laws.left_out == (
        "c2.weight^+1 c2.bias^+1: c2.bias is not trained, so that the others conserve nothing",
    )
    assert "c2.bias" not in " ".join(laws.quantities()["quantity"])
    assert repr(laws).splitlines()[-1] == f"left out: {laws.left_out[0]}"


def test_a_block_without_gradient_is_left_alone(maps):
    model, batch = reference("pre-LN")
    optimizer = optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    optimizer.register_step_pre_hook(lambda *_: setattr(model.b[0].a.k.bias, "grad", None))
    report = watched(model, batch, maps["pre-LN"], optimizer).report()
    assert ("dead block", "b.0.a.k.bias") not in {(one.law, one.block) for one in report}
    assert all(one.holds for one in report)


def test_sums_that_begin_at_zero():
    net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6, eps=0.0), nn.Tanh(), nn.Linear(6, 3)).double()
    nn.init.zeros_(net[0].bias)
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    report = watched(net, x, ng.scan(net, x), optim.SGD(net.parameters(), lr=0.1)).report()
    assert report["column sums", "0.bias"].holds is True
    assert 0 <= report["column sums", "0.bias"].error < 1e-14


def test_a_long_report_shows_what_does_not_hold():
    net = nn.Sequential(nn.Linear(4, 70, bias=False), nn.BatchNorm1d(70, eps=1e-300), nn.Tanh()).double()
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    report = watched(net, x, ng.scan(net, x), optim.SGD(net.parameters(), lr=0.1)).report()
    assert repr(report) == "71 of 71 laws hold"
    bad = dataclasses.replace(report.checks[3], holds=False, reason="because")
    lines = repr(
        dataclasses.replace(report, checks=(*report.checks[:3], bad, *report.checks[4:]))
    ).splitlines()
    assert (len(lines), lines[-1]) == (3, "70 of 71 laws hold")
    assert "NO because" in " ".join(lines[1].split())


def test_the_drift_step_by_step(maps):
    model, batch = reference("pre-LN")
    laws = watched(model, batch, maps["pre-LN"], optim.SGD(model.parameters(), lr=0.05), steps=5)
    frame, report = laws.frame(), laws.report()
    assert list(frame.columns) == ["law", "block", "step", "predicted", "measured", "scale"]
    for (law, block), rows in frame.groupby(["law", "block"]):
        assert rows["step"].tolist() == [1, 2, 3, 4, 5]
        if law == "joint norms":
            assert rows["measured"].iloc[-1] == report[law, block].measured
        else:
            assert np.all(rows["predicted"] == 0)
    assert len(laws.quantities()) == len(report)


def test_the_run_is_as_without_it(maps):
    states = []
    for watch in (True, False):
        model, batch = reference("pre-LN")
        optimizer = optim.SGD(model.parameters(), lr=0.05)
        if watch:
            watched(model, batch, maps["pre-LN"], optimizer, steps=1)
        else:
            target = torch.randn((8, 8, 17), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            (model(batch).tanh() - target).square().mean().backward()
            optimizer.step()
        states.append(model.state_dict())
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_wrong_use_is_named(maps):
    net = network(dtype=torch.float64)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"symmetries must be a SymmetryMap, .*; got str"):
        ng.conservation(net, optimizer, symmetries="map")
    with pytest.raises(ValueError, match="symmetries= or blocks=, not both"):
        ng.conservation(net, optimizer, symmetries=maps["pre-LN"], blocks=["0.weight"])
    with pytest.raises(ValueError, match=r"the map must be of this model; it has 'pos'"):
        ng.conservation(net, optimizer, symmetries=maps["pre-LN"])
    plain = nn.Sequential(nn.Linear(3, 3, bias=False)).double()
    found = ng.scan(plain, torch.randn(5, 3))
    with pytest.raises(ValueError, match="must have a symmetry of what is trained"):
        ng.conservation(plain, optim.SGD(plain.parameters(), lr=0.1), symmetries=found)
