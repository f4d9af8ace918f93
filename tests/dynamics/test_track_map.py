"""With a map, the tracker takes what is free, and the effective rates, from it."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn, optim

import normgeom as ng
from tests.dynamics.runs import network, train
from tests.golden.scan_models import REFERENCES, reference


def stepped(model, batch, found, *, blocks=None, rate=0.1, steps=2, **options):
    """The table of a short run with SGD."""
    optimizer = optim.SGD(model.parameters(), lr=rate)
    with ng.track(model, optimizer, symmetries=found, blocks=blocks, **options) as tracker:
        for _ in range(steps):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    return tracker.frame()


@pytest.fixture(scope="module")
def runs():
    found = {}
    for name in REFERENCES:
        model, batch = reference(name)
        own = ng.scan(model, batch)
        rates = own.effective_learning_rates(optim.SGD(model.parameters(), lr=0.1))
        found[name] = own, rates, stepped(model, batch, own).query("step == 1").set_index("block")
    return found


@pytest.mark.parametrize("name", REFERENCES)
def test_the_rates_are_those_of_the_map(runs, name):
    _, rates, frame = runs[name]
    wanted = [rates[block] for block in frame.index]
    np.testing.assert_allclose(frame["effective_learning_rate"], wanted, rtol=1e-12)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_kinds_are_those_of_the_map(runs, name):
    found, _, frame = runs[name]
    kinds = frame["scale_invariant"]
    assert set(kinds.index[kinds == "unused"]) == {one.block for one in found.dead}
    assert set(kinds.index[kinds.isin(["row", "whole"])]) == {b.block for b in found.single if not b.dead}
    coupled = {one.block for one in found.blocks if not one.scale.holds}
    assert set(kinds[kinds.isin(["none", "joint"])].index) == coupled


def test_a_common_length_is_joint(runs):
    _, _, frame = runs["pre-LN"]
    joint = frame[frame["scale_invariant"] == "joint"]
    assert len(joint) == 10
    wanted = 0.1 / float(joint["norm"].pow(2).sum())
    np.testing.assert_allclose(joint["effective_learning_rate"], wanted)


def test_filters_are_rows_and_a_common_length_that_is_not_tracked_is_not_free(runs):
    assert runs["batch norm"][2]["scale_invariant"]["c1.weight"] == "row"
    model, batch = reference("pre-LN")
    frame = stepped(model, batch, runs["pre-LN"][0], blocks=["pos", "tok.weight"])
    assert set(frame["scale_invariant"]) == {"none"}
    assert frame["effective_learning_rate"].isna().all()


def test_parts_of_blocks(runs):
    model, batch = reference("batch norm")
    blocks = [ng.rows("c1.weight"), ng.rows("fc.weight"), ng.Block("n1.weight", slice(0, 3))]
    frame = stepped(model, batch, runs["batch norm"][0], blocks=blocks).query("step == 1")
    kinds = frame["scale_invariant"].tolist()
    assert kinds[:-1] == ["whole"] * 8 + ["none"] * 4
    assert pd.isna(kinds[-1])
    rates = frame["effective_learning_rate"].to_numpy()
    np.testing.assert_allclose(rates[:8], 0.1 / frame["norm"].to_numpy()[:8] ** 2)
    assert np.isnan(rates[8:]).all()


def test_a_tensor_that_the_map_sees_in_pieces():
    class Normalized(nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads, self.qkv = 2, nn.Linear(6, 24, bias=False)

        def forward(self, x):
            q, k, v = (a / a.norm(dim=-1, keepdim=True) for a in self.qkv(x).chunk(3, -1))
            return (q @ k.T).softmax(-1) @ v

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), Normalized()).double()
    batch = torch.randn(7, 4).double()
    found = ng.scan(model, batch)
    assert [one.block for one in found.single] == [f"1.qkv.weight[{k}:{k + 8}]" for k in (0, 8, 16)]
    frame = stepped(model, batch, found).set_index("block")
    assert set(frame["scale_invariant"]["1.qkv.weight"]) == {"whole"}
    assert frame["effective_learning_rate"]["1.qkv.weight"].notna().all()


def test_no_test_of_its_own_is_made():
    net = network()
    optimizer, batch = optim.SGD(net.parameters(), lr=0.1), torch.randn(12, 6)
    with ng.track(net, optimizer, symmetries=ng.scan(net, batch), batch=batch) as tracker:
        train(net, optimizer, steps=1)
    assert tracker.scale_invariance is None
    assert tracker.frame()["scale_invariant"].tolist() == ["whole", *["none"] * 4]


def test_without_a_map_nothing_changes():
    net = network()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with ng.track(net, optimizer) as tracker:
        train(net, optimizer)
    frame = tracker.frame()
    assert frame["scale_invariant"].isna().all()
    np.testing.assert_allclose(frame["effective_learning_rate"], 0.1 / frame["norm"] ** 2, rtol=1e-6)


def test_wrong_use_is_named(runs):
    net = network()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"symmetries must be a SymmetryMap, from scan; got dict"):
        ng.track(net, optimizer, symmetries={})
    with pytest.raises(ValueError, match="the map must be of this model, which has no block 'pos'"):
        ng.track(net, optimizer, symmetries=runs["pre-LN"][0])


@pytest.mark.parametrize("name", REFERENCES)
def test_the_map_and_the_test_of_the_tracker_agree(runs, name):
    model, batch = reference(name)
    tested = {one.block: str(one.kind) for one in ng.scale_invariance(model, batch)}
    kinds = runs[name][2]["scale_invariant"].replace("joint", "none")
    assert kinds.to_dict() == tested
