"""The standard deviations of summed inputs inside recurrent layers, and a run that does not notice."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn.utils import parametrizations, prune

import normgeom as ng
from normgeom import track
from normgeom.copies import results_by_value
from normgeom.models.sigmas import sigmas

NORMS = {
    "core.layer0.weight_input": "core.layer0.norm_input",
    "core.layer1.weight_recurrent": "core.layer1.norm_recurrent",
}


class Reader(nn.Module):
    """A recurrent layer with dropout and a readout of its outputs."""

    def __init__(self, kind=ng.LNLSTM, dropout=0.3):
        super().__init__()
        self.core, self.readout = kind(5, 6, 2, dropout=dropout, eps=1e-12), nn.Linear(6, 2)
        generator = torch.Generator().manual_seed(4)
        self.core.reset_parameters(generator=generator)
        with torch.no_grad():
            self.readout.weight.copy_(torch.randn(2, 6, generator=generator))
            self.readout.bias.zero_()

    def forward(self, x):
        return self.readout(self.core(x)[0])


def inputs(kind):
    """Features or ids of 7 steps of 4 cases."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, 5, (7, 4), generator=generator)
    return ids if kind == "ids" else torch.randn(7, 4, 5, generator=generator)


def run(net, optimizer, x, steps=3):
    """Train, from one random state."""
    torch.manual_seed(6)
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return [value.detach().clone() for value in net.parameters()]


@pytest.mark.parametrize("kind", ["features", "ids"])
@pytest.mark.parametrize("every", [1, 2])
def test_the_run_of_a_recurrent_layer_is_bit_identical(kind, every):
    net, other, x = Reader(), Reader(), inputs(kind)
    optimizer = optim.Adam(net.parameters(), lr=0.01)
    with track(net, optimizer, summed_inputs=NORMS, every=every) as tracker:
        found = run(net, optimizer, x)
    assert tracker.frame().set_index("block").loc[list(NORMS), "sigma"].notna().all()
    wanted = run(other, optim.Adam(other.parameters(), lr=0.01), x)
    assert all(map(torch.equal, found, wanted))
    assert not any(module._forward_pre_hooks for module in net.modules())


@pytest.mark.parametrize("layer", [ng.LNLSTM, ng.LNGRU])
@pytest.mark.parametrize("kind", ["features", "ids"])
def test_sigma_inside_a_recurrent_layer_is_a_mean_over_cases(layer, kind):
    net, x = Reader(layer, dropout=0.0), inputs(kind)
    found = sigmas(net.core, x)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with track(net, optimizer, summed_inputs=NORMS) as tracker:
        run(net, optimizer, x, steps=1)
    sigma = tracker.frame().set_index("block")["sigma"]
    for block, norm in NORMS.items():
        assert sigma[block] == pytest.approx(float(found[norm.removeprefix("core.")].mean()), rel=1e-5)


@pytest.mark.parametrize(
    "compute", [parametrizations.spectral_norm, partial(prune.l1_unstructured, amount=9)]
)
def test_weights_that_are_computed_keep_their_state(compute):
    net, x = Reader(), inputs("features")
    compute(net.core.layer0, "weight_recurrent")
    other = copy.deepcopy(net, results_by_value(net))
    names = [name for name, _ in net.named_parameters() if "layer0" in name and "weight_recurrent" in name]
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with track(net, optimizer, summed_inputs={names[0]: "core.layer0.norm_recurrent"}):
        run(net, optimizer, x)
    run(other, optim.SGD(other.parameters(), lr=0.1), x)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in net.state_dict().items())


def test_sigma_is_that_of_the_weight_of_the_step_not_of_the_one_before():
    net, x = Reader(dropout=0.0), inputs("features")
    prune.l1_unstructured(net.core.layer0, "weight_input", 0.5)
    optimizer, block = optim.SGD(net.parameters(), lr=1.0), "core.layer0.weight_input_orig"
    run(net, optimizer, x, steps=1)
    wanted = float(sigmas(net.core, x)["layer0.norm_input"].mean())
    with track(net, optimizer, summed_inputs={block: "core.layer0.norm_input"}) as tracker:
        run(net, optimizer, x, steps=1)
    found = tracker.frame().set_index("block").loc[block, "sigma"]
    assert found == pytest.approx(wanted, rel=1e-5)


def test_sigma_of_a_cell_on_its_own_that_is_given_ids():
    cell, ids = ng.LNRNNCell(5, 6, placement=ng.Placement(cell=False)), torch.tensor([1, 1, 3])
    optimizer = optim.SGD(cell.parameters(), lr=0.1)
    wanted = float(cell.weight_input.detach().T[ids].std(1, correction=0).mean())
    with track(cell, optimizer, summed_inputs={"weight_input": "norm_input"}) as tracker:
        cell(ids).sum().backward()
        optimizer.step()
    assert tracker.frame().set_index("block").loc["weight_input", "sigma"] == pytest.approx(wanted)


def test_there_is_no_hook_between_logged_steps():
    net = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4))
    optimizer, hooks = optim.SGD(net.parameters(), lr=0.1), []
    with track(net, optimizer, summed_inputs={"0.weight": "1"}, every=3) as tracker:
        for _ in range(7):
            hooks.append(len(net[1]._forward_pre_hooks))
            net(torch.randn(3, 5)).sum().backward()
            optimizer.step()
    assert hooks == [1, 0, 0, 1, 0, 0, 1]
    assert np.isfinite(tracker.frame().set_index("block").loc["0.weight", "sigma"]).all()


def test_measures_on_a_batch_are_not_taken_for_the_run():
    net, x = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4)), torch.randn(3, 5)
    seen = []
    for options in ({}, {"batch": 100 * x, "nats": True, "family": ng.Categorical()}):
        optimizer = optim.SGD(net.parameters(), lr=0.0)
        with track(net, optimizer, summed_inputs={"0.weight": "1"}, **options) as tracker:
            for _ in range(2):
                net(x).sum().backward()
                optimizer.step()
        seen.append(tracker.frame().set_index("block").loc["0.weight", "sigma"].to_numpy())
    np.testing.assert_array_equal(*seen)


def test_copies_and_files_of_a_watched_model_are_not_watched():
    model, x = Reader(dropout=0.0), inputs(ng.LNLSTM)
    model = nn.ModuleDict({"reader": model, "norm": nn.LayerNorm(2)})
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    names = {f"reader.{block}": f"reader.{norm}" for block, norm in NORMS.items()}
    names["reader.readout.weight"] = "norm"
    found = []
    for copies in (False, True):
        with track(model, optimizer, blocks=[*names], summed_inputs=names) as tracker:
            if copies:
                for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                    other["norm"](10 * other["reader"](2 * x))
            model["norm"](model["reader"](x))
            optimizer.step()
        found.append(tracker.frame()["sigma"].tolist())
    assert found[0] == found[1]
    assert np.isfinite(found[0]).all()
