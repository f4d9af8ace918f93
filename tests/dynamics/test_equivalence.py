"""Scaling a block and its rate together changes nothing, and everything else is seen."""

import pytest
import torch
from torch import nn, optim
from torch.nn.utils import prune

import normgeom as ng
from normgeom import scale_equivalence
from tests.dynamics.runs import Lion, network, train

MAKERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.2),
    "momentum and decay": lambda p: optim.SGD(p, lr=0.2, momentum=0.9, weight_decay=0.05, nesterov=True),
    "Adam with L2": lambda p: optim.Adam(p, lr=0.02, weight_decay=0.05),
    "AdamW": lambda p: optim.AdamW(p, lr=0.02, weight_decay=0.05),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.02, weight_decay=0.05),
    "NAdam with L2": lambda p: optim.NAdam(p, lr=0.02, weight_decay=0.05),
    "NAdam, decoupled": lambda p: optim.NAdam(p, lr=0.02, weight_decay=0.1, decoupled_weight_decay=True),
    "Lion": lambda p: Lion(p, lr=0.02, weight_decay=0.5),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("factor", [2.0, 0.25])
def test_a_power_of_two_leaves_every_digit(make, factor):
    net = network()
    found = scale_equivalence(net, make(net.parameters()), "0.weight", train, factor=factor)
    assert (found.holds, found.error) == (True, 0.0)
    assert found.predicted == found.measured


@pytest.mark.parametrize("make", [MAKERS["SGD"], MAKERS["AdamW"]])
def test_any_factor_holds_to_rounding(make):
    net = network(dtype=torch.float64)
    found = scale_equivalence(net, make(net.parameters()), "0.weight", train, factor=3.0)
    assert found.holds is True
    assert found.tolerance < 1e-10


def test_a_scaled_run_that_ends_in_nan_does_not_hold():
    net = network()
    plain = net[0].weight.norm()

    def run(net, optimizer):
        return (net[0].weight.norm() - plain).abs().lt(1.0).float().log() * 0 + 1

    found = scale_equivalence(net, optim.SGD(net.parameters(), lr=0.1), "0.weight", run, factor=8.0)
    assert found.holds is False
    assert found.reason.startswith("the runs part at number 0")


@pytest.mark.parametrize("factor", [2.0, 0.25])
def test_the_decay_of_muon_is_decoupled(factor):
    net = network()
    matrices = optim.Muon([net[0].weight, net[3].weight], lr=0.02, weight_decay=0.1)
    assert scale_equivalence(net, matrices, "0.weight", train, factor=factor).error == 0.0


class Outputs(nn.Module):
    """The outputs of a recurrent layer alone."""

    def __init__(self):
        super().__init__()
        self.core = ng.LNLSTM(3, 6, eps=0.0, dtype=torch.float64)
        self.core.reset_parameters(generator=torch.Generator().manual_seed(2))

    def forward(self, x):
        return self.core(x, torch.full((2, 1, 4, 6), 0.1, dtype=torch.float64).unbind())[0]


@pytest.mark.parametrize("name", ["core.layer0.weight_input", "core.layer0.weight_recurrent"])
def test_long_runs_whose_roundings_add_up_are_not_rejected(name):
    net, x = Outputs(), torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0)).double()

    def run(net, optimizer):
        losses = []
        for _ in range(40):
            optimizer.zero_grad()
            losses.append((net(x) - 0.3).square().mean())
            losses[-1].backward()
            optimizer.step()
        return torch.stack(losses)

    found = scale_equivalence(net, optim.Adam(net.parameters(), lr=0.01, eps=0.0), name, run, factor=3.0)
    assert found.holds is True
    assert found.tolerance < 1e-9


def test_dropout_and_data_order_are_the_same_in_all_runs():
    net = network()
    net.insert(3, nn.Dropout(0.5))
    state = torch.get_rng_state()
    assert scale_equivalence(net, optim.SGD(net.parameters(), lr=0.2), "0.weight", train).error == 0.0
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("net", "name"), [(network(), "3.weight"), (network(eps=1e-3), "0.weight")])
def test_a_block_that_is_not_invariant_is_rejected(net, name):
    found = scale_equivalence(net, optim.SGD(net.parameters(), lr=0.2), name, train)
    assert found.holds is False
    assert "the runs part at number 0" in found.reason


class ByNorm(optim.SGD):
    """A rate that goes with 1/‖w‖ in place of what its settings say."""

    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                for value in group["params"]:
                    value.grad /= value.norm()
        return super().step(closure)


def test_an_optimizer_that_is_not_what_it_says_is_rejected():
    net = network()
    assert scale_equivalence(net, ByNorm(net.parameters(), lr=0.2), "0.weight", train).holds is False


def test_a_run_that_ignores_what_it_is_given_decides_nothing():
    net, other = network(), network()
    found = scale_equivalence(
        net,
        optim.SGD(net.parameters(), lr=0.2),
        "0.weight",
        lambda n, o: other(torch.ones(2, 6)).mean().reshape(1),
    )
    assert found.holds is None
    assert "does run use what it is given" in found.reason


def test_a_pruned_block_that_has_run():
    net = network()
    prune.l1_unstructured(net[0], "weight", 0.5)
    optimizer = optim.SGD(net.parameters(), lr=0.2)
    train(net, optimizer, steps=1)
    found = scale_equivalence(net, optimizer, "0.weight_orig", train, factor=2.0)
    assert (found.holds, found.error) == (True, 0.0)


def test_the_model_and_the_optimizer_are_not_trained():
    net = network()
    optimizer, saved = optim.Adam(net.parameters()), {k: v.clone() for k, v in net.state_dict().items()}
    scale_equivalence(net, optimizer, "0.weight", train)
    torch.testing.assert_close(net.state_dict(), saved, rtol=0, atol=0)
    assert not optimizer.state
    assert len(optimizer.param_groups) == 1


def test_wrong_arguments_are_named():
    net = network()
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match=r"no parameter 'w'; it has 0\.weight"):
        scale_equivalence(net, optimizer, "w", train)
    with pytest.raises(ValueError, match=r"above 0 and not 1; got 1.0"):
        scale_equivalence(net, optimizer, "0.weight", train, factor=1.0)
    with pytest.raises(TypeError, match="run must return a tensor"):
        scale_equivalence(net, optimizer, "0.weight", lambda n, o: None)
    with pytest.raises(ValueError, match="or outputs; got an empty one"):
        scale_equivalence(net, optimizer, "0.weight", lambda n, o: torch.ones(0))
    with pytest.raises(ValueError, match="finite numbers; number 1 is nan"):
        scale_equivalence(net, optimizer, "0.weight", lambda n, o: torch.tensor([1.0, torch.nan]))
    with pytest.raises(ValueError, match=r"bfloat16: take a power of two; got 3\.0"):
        scale_equivalence(net, optim.Muon([net[0].weight]), "0.weight", train, factor=3.0)
    with pytest.raises(ValueError, match="no law for this optimizer: its steps shrink"):
        scale_equivalence(net, optim.Adagrad(net.parameters()), "0.weight", train)
    with pytest.raises(ValueError, match="no law for this optimizer: its first steps are not divided"):
        scale_equivalence(net, optim.RAdam(net.parameters()), "0.weight", train)
    train(net, optimizer)
    with pytest.raises(ValueError, match=r"state of earlier steps for '0\.weight'"):
        scale_equivalence(net, optimizer, "0.weight", train)
