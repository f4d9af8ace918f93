"""What a tracker measures on request: nats and curvature on a batch, and sigma."""

import copy

import numpy as np
import pytest
import torch
from torch import optim

import normgeom as ng
from normgeom import Categorical, curvature, kl_divergence, track
from tests.dynamics.runs import batches, network, train


def test_nats_and_curvature_are_those_of_each_block_alone():
    net = network(dtype=torch.float64)
    x, before = batches(1, torch.float64)[0][0], copy.deepcopy(network(dtype=torch.float64))
    optimizer, family = optim.SGD(net.parameters(), lr=0.1), Categorical()
    with track(net, optimizer, batch=x, nats=True, curvature=True, family=family) as tracker:
        train(net, optimizer, steps=1)
    old, new = ({k: v.detach() for k, v in n.named_parameters()} for n in (before, net))
    row = tracker.frame().set_index("block").loc["3.weight"]
    update = {"3.weight": new["3.weight"] - old["3.weight"]}
    wanted = kl_divergence(before, old, x, {"3.weight": new["3.weight"]}, family=family)
    assert row["nats"] == pytest.approx(float(wanted))
    assert row["curvature"] == pytest.approx(float(curvature(before, old, x, update, family=family)))


def test_nats_of_rows_are_measured_row_by_row():
    net = network(dtype=torch.float64)
    x, optimizer = batches(1, torch.float64)[0][0], optim.SGD(net.parameters(), lr=0.1)
    options = {"batch": x, "nats": True, "family": Categorical()}
    with track(net, optimizer, blocks=[ng.rows("3.weight")], **options) as tracker:
        train(net, optimizer, steps=1)
    frame = tracker.frame().set_index("block")
    old = dict(network(dtype=torch.float64).named_parameters())
    moved = old["3.weight"].detach().clone()
    moved[1] = net[3].weight.detach()[1]
    old = {k: v.detach() for k, v in old.items()}
    wanted = kl_divergence(network(dtype=torch.float64), old, x, {"3.weight": moved}, family=Categorical())
    assert frame.loc["3.weight[1]", "nats"] == pytest.approx(float(wanted))


def test_sigma_is_that_of_the_summed_inputs():
    net = network()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    wanted = []

    def seen(n, when):
        if when == "before":
            x = batches(4)[0][len(wanted)]
            wanted.append(float((x @ n[0].weight.detach().T).std(1, correction=0).mean()))

    with track(net, optimizer, summed_inputs={"0.weight": "1"}) as tracker:
        train(net, optimizer, seen=seen)
    frame = tracker.frame().set_index("block")
    np.testing.assert_allclose(frame.loc["0.weight", "sigma"], wanted, rtol=1e-5)
    assert frame.loc["3.weight", "sigma"].isna().all()


def test_a_run_that_diverges_goes_on_with_nan():
    net, x = network(), batches(1)[0][0]
    optimizer = optim.SGD(net.parameters(), lr=1e30)
    options = {"batch": x, "family": ng.Categorical(), "nats": True, "curvature": True}
    with track(net, optimizer, **options) as tracker:
        train(net, optimizer, steps=3)
    last = tracker.frame().query("step == 3")
    assert last[["nats", "curvature"]].isna().all(axis=None)


def test_a_batch_that_the_model_does_not_take_is_refused_at_the_start():
    net, x = network(), batches(1)[0][0]
    with pytest.raises(ValueError, match="the model must take the data as it is given"):
        track(net, optim.SGD(net.parameters(), lr=1), batch=x[:, 1:], family=ng.Categorical(), nats=True)
