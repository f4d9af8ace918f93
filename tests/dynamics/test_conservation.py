"""The exact laws hold to rounding, and every seeded fault is rejected with its reason."""

import math

import pytest
import torch
from torch import nn, optim

import normgeom as ng
from normgeom import conservation
from tests.dynamics.runs import Lion, network, train

GROWTH, COLUMNS = ("norm growth", "0.weight"), ("column sums", "0.weight")


def laws_of(make, *, net=None, steps=8, mode="plain", blocks=("0.weight",), before=0):
    """The report of a run with an optimizer, which has made some steps before."""
    net = net or network(dtype=torch.float64)
    optimizer = make(net.parameters())
    train(net, optimizer, steps=before) if before else None
    with conservation(net, optimizer, blocks=blocks) as laws:
        train(net, optimizer, steps=steps, mode=mode)
    return laws.report()


class Faulty(optim.SGD):
    """SGD that does something else than its settings say: rate and decay times a factor."""

    rate, decay = 1.001, 1.0

    def step(self, closure=None):
        saved = [(g["lr"], g["weight_decay"]) for g in self.param_groups]
        for group in self.param_groups:
            group["lr"] *= self.rate
            group["weight_decay"] *= self.decay
        found = super().step(closure)
        for group, (rate, decay) in zip(self.param_groups, saved, strict=True):
            group["lr"], group["weight_decay"] = rate, decay
        return found


class WrongDecay(Faulty):
    """SGD whose weight decay is 1 % more than it says."""

    rate, decay = 1.0, 1.01


@pytest.mark.parametrize("mode", ["plain", "clipped", "accumulated", "amp", "scheduler"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_laws_hold_to_rounding_for_sgd(mode, decay):
    report = laws_of(lambda p: optim.SGD(p, lr=0.1, weight_decay=decay), mode=mode)
    for key in (GROWTH, COLUMNS):
        assert report[key].holds is True, report
        assert report[key].tolerance < (1e-7 if mode == "clipped" else 1e-9)
    assert report[GROWTH].measured == pytest.approx(report[GROWTH].predicted, rel=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
        {"momentum": 0.5, "weight_decay": 0.1, "dampening": 0.3},
    ],
)
@pytest.mark.parametrize("before", [0, 3])
def test_column_sums_are_conserved_with_momentum_too(options, before):
    report = laws_of(lambda p: optim.SGD(p, lr=0.1, **options), before=before)
    assert report[COLUMNS].holds is True
    assert report[COLUMNS].error < 1e-14
    assert report[GROWTH].holds is None
    assert "momentum" in report[GROWTH].reason


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}])
def test_what_happens_while_it_is_closed_is_not_held_against_the_run(options):
    net = network(dtype=torch.float64)
    optimizer = optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1, **options)
    laws = conservation(net, optimizer, blocks=["0.weight"])
    for _ in range(2):
        train(net, optimizer, steps=3)
        with laws:
            train(net, optimizer, steps=3)
        with torch.no_grad():
            net[0].weight.add_(1.0)
    assert laws.report()[COLUMNS].holds is True


def test_a_fault_is_remembered_when_it_is_opened_again():
    net = network(dtype=torch.float64)
    optimizer = WrongDecay(net.parameters(), lr=0.1, weight_decay=0.1)
    with conservation(net, optimizer, blocks=["0.weight"]) as laws:
        train(net, optimizer, steps=3)
    with laws:
        pass
    assert laws.report()[COLUMNS].holds is False


def test_it_cannot_be_opened_twice_at_once():
    net = network()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with conservation(net, optimizer) as laws, pytest.raises(RuntimeError, match="open already"):
        laws.__enter__()
    assert not optimizer._optimizer_step_pre_hooks


def test_column_sums_decay_as_a_power():
    net = network(dtype=torch.float64)
    first = net[0].weight.detach().sum(0).abs().max()
    report = laws_of(lambda p: optim.SGD(p, lr=0.5, weight_decay=0.2), net=net, steps=10)
    assert report[COLUMNS].measured == pytest.approx(float(first) * (1 - 0.1) ** 10, rel=1e-12)


def test_laws_that_do_not_apply_are_not_counted_and_name_the_optimizer():
    last = repr(laws_of(lambda p: optim.AdamW(p, lr=0.01))).splitlines()[-1]
    assert last == "0 of 0 laws hold; 2 do not apply, or rounding or an eps hides them"
    assert repr(laws_of(lambda p: optim.SGD(p, lr=0.1))).splitlines()[-1] == "2 of 2 laws hold"
    assert "this is AdamW, whose step" in laws_of(lambda p: optim.AdamW(p, lr=0.01))[GROWTH].reason


@pytest.mark.parametrize("make", [lambda p: optim.AdamW(p, lr=0.01), lambda p: Lion(p, lr=0.01)])
def test_other_optimizers_break_both_and_are_told_apart(make):
    report = laws_of(make)
    for key in (GROWTH, COLUMNS):
        assert report[key].holds is None
        assert report[key].error > 1e3 * report[key].tolerance
        assert "the law is of SGD" in report[key].reason


def test_a_learning_rate_off_by_a_thousandth_is_rejected():
    report = laws_of(lambda p: Faulty(p, lr=0.1))
    assert report[GROWTH].holds is False
    assert report[GROWTH].error == pytest.approx(0.002, rel=0.01)
    assert "learning rate 0.1001" in report[GROWTH].reason
    assert report[COLUMNS].holds is True


def test_a_weight_decay_off_by_a_hundredth_is_rejected():
    report = laws_of(lambda p: WrongDecay(p, lr=0.1, weight_decay=0.1))
    assert report[GROWTH].holds is False
    assert "decay 0.0101, not 0.1 and 0.01" in report[GROWTH].reason
    assert report[COLUMNS].holds is False
    assert "not the optimizer's rate, decay or step" in report[COLUMNS].reason


def test_a_block_that_is_not_invariant_is_rejected():
    report = laws_of(lambda p: optim.SGD(p, lr=0.1), blocks=["3.weight"])
    growth, columns = report
    assert growth.holds is False
    assert "not scale invariant" in growth.reason
    # The softmax does not see a shift of all logits, so the columns of the last layer are conserved.
    assert columns.holds is True


def test_rms_norm_has_the_first_law_and_not_the_second():
    net = network(dtype=torch.float64)
    net[1] = nn.RMSNorm(8, eps=1e-300, dtype=torch.float64)
    report = laws_of(lambda p: optim.SGD(p, lr=0.1), net=net)
    assert report[GROWTH].holds is True
    assert report[COLUMNS].holds is False
    assert "a shift of units matters" in report[COLUMNS].reason


@pytest.mark.parametrize("eps", [1e-5, 1e-3])
def test_eps_breaks_the_first_law_by_its_size_and_not_the_second(eps):
    report = laws_of(lambda p: optim.SGD(p, lr=0.1), net=network(eps=eps, dtype=torch.float64))
    assert report[GROWTH].holds is False
    cosine = float(report[GROWTH].reason.split("mean cosine ")[1].split(")")[0])
    assert eps / 100 < abs(cosine) < 100 * eps
    assert report[COLUMNS].holds is True


def test_rows_follow_the_first_law_one_by_one_under_weight_norm():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 3, dtype=torch.float64))
    net = nn.Sequential(layer)
    name = "0.parametrizations.weight.original1"
    report = laws_of(lambda p: optim.SGD(p, lr=0.1), net=net, blocks=[ng.rows(name)])
    assert [(one.block, one.holds) for one in report] == [(f"{name}[{k}]", True) for k in range(3)]


def test_in_float32_rounding_is_allowed_for_or_hides_the_law():
    net = network()
    assert laws_of(lambda p: optim.SGD(p, lr=1.0), net=net)[GROWTH].holds is True
    report = laws_of(lambda p: optim.SGD(p, lr=1e-6), net=network())
    assert report[GROWTH].holds is None
    assert "use float64" in report[GROWTH].reason


def test_a_layer_that_is_moved_by_hand_is_rejected():
    net = network(dtype=torch.float64)
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    def nudge(*_):
        with torch.no_grad():
            net[0].weight.add_(1e-6)

    optimizer.register_step_post_hook(nudge)
    with conservation(net, optimizer, blocks=["0.weight"]) as laws:
        train(net, optimizer)
    assert [one.holds for one in laws.report()] == [False, False]


def test_the_report_is_a_table_and_the_run_is_as_without_it():
    net, other = network(dtype=torch.float64), network(dtype=torch.float64)
    report = laws_of(lambda p: optim.SGD(p, lr=0.1), net=net, blocks=None)
    train(other, optim.SGD(other.parameters(), lr=0.1), steps=8)
    torch.testing.assert_close(net.state_dict(), other.state_dict(), rtol=0, atol=0)
    assert len(report) == 4
    assert "norm growth 0.weight" in " ".join(repr(report).split())
    assert set(report.to_frame()["block"]) == {"0.weight", "3.weight"}
    with pytest.raises(KeyError, match=r"no check \('norm growth', '9'\)"):
        report["norm growth", "9"]


def test_a_block_without_gradient_says_so():
    net = network(dtype=torch.float64)
    with torch.no_grad():
        net[3].weight.zero_()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with conservation(net, optimizer, blocks=["0.weight"]) as laws:
        net(torch.ones(2, 6, dtype=torch.float64)).sum().backward()
        optimizer.step()
    growth = laws.report()[GROWTH]
    assert growth.holds is None
    assert growth.reason == "no gradient reached the block"
    assert math.isnan(growth.error)


def test_wrong_use_is_named():
    net = network()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with conservation(net, optimizer) as laws, pytest.raises(ValueError, match="no step with a gradient"):
        laws.report()
    with pytest.raises(ValueError, match="it holds none"):
        conservation(net, optim.SGD(network().parameters(), lr=0.1))
    with pytest.raises(TypeError, match="got Sequential and str"):
        conservation(net, "sgd")


def test_a_learning_rate_of_0_says_so():
    net = network(dtype=torch.float64)
    optimizer = optim.SGD(net.parameters(), lr=0.0)
    with conservation(net, optimizer, blocks=["0.weight"]) as laws:
        train(net, optimizer)
    growth = laws.report()[GROWTH]
    assert (growth.holds, growth.reason) == (None, "every learning rate was 0")
