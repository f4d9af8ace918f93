"""The Fisher matrix, whole and by cases, against a plain autograd loop."""

import importlib

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.families import Categorical, Gaussian
from normgeom.geometry.fisher import (
    empirical_fisher,
    fisher,
    fisher_diagonal,
    fisher_trace,
    monte_carlo_fisher,
)
from normgeom.geometry.per_example import per_example_fisher
from tests.geometry.glms import problem
from tests.geometry.networks import MIXED, NETWORKS, assert_near, build, free
from tests.oracles import plain_case_fishers, plain_jacobian


@pytest.fixture(params=MIXED)
def network(request):
    module, data, family = build(request.param)
    return module, data, family, plain_case_fishers(build(request.param)[0], data, family)


@pytest.mark.parametrize("name", NETWORKS)
def test_fisher_equals_a_plain_autograd_loop(name):
    module, data, family = build(name)
    wanted = plain_case_fishers(build(name)[0], data, family).mean(0)
    F = fisher(module, dict(module.named_parameters()), data, family=family)
    assert_near(F.to_order("tensor").matrix, wanted)
    assert_near(fisher(module, free(module), data, family=family, order="tensor").matrix, wanted)


@pytest.mark.parametrize("name", NETWORKS)
def test_per_example_fisher_equals_a_plain_autograd_loop(name):
    module, data, family = build(name)
    wanted = plain_case_fishers(build(name)[0], data, family)
    F = per_example_fisher(module, free(module), data, family=family, order="tensor")
    assert_near(F.materialize().matrix, wanted)
    neuron = per_example_fisher(module, free(module), data, family=family)
    assert_near(neuron.materialize().to_order("tensor").matrix, wanted)
    assert_near(neuron[-1].to_order("tensor").matrix, wanted[-1])
    assert_near(neuron.sum().to_order("tensor").matrix, wanted.sum(0))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_is_left_as_found(name):
    module, data, family = build(name)
    with torch.no_grad():
        module(*data if isinstance(data, tuple) else (data,))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    state = {k: v.clone() for k, v in module.state_dict().items()}
    attributes = [dict(vars(m)) for m in module.modules()]
    training, random = [m.training for m in module.modules()], torch.get_rng_state()
    fisher(module, dict(module.named_parameters()), data, family=family)
    assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    assert [m.training for m in module.modules()] == training
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in module.parameters())
    for m, before in zip(module.modules(), attributes, strict=True):
        assert vars(m).keys() == before.keys()
        assert all(vars(m)[k] is v for k, v in before.items())


@pytest.mark.parametrize("name", ["LSTM", "LSTM with weight norm", "GRU"])
def test_recurrent_weights_are_still_those_that_the_layer_uses(name):
    module, data, family = build(name)
    fisher(module, free(module), data, family=family)
    own = dict(module.layer.named_parameters())
    flat = module.layer._flat_weights
    assert all(w is own[n] for n, w in zip(module.layer._flat_weights_names, flat, strict=True) if n in own)


@pytest.mark.parametrize("chunk", [1, 2])
def test_chunks_change_nothing(network, chunk):
    module, data, family, wanted = network
    F = fisher(module, free(module), data, family=family, order="tensor", chunk_size=chunk)
    assert_near(F.matrix, wanted.mean(0))


def test_row_chunks_change_nothing(network, monkeypatch):
    monkeypatch.setattr(importlib.import_module("normgeom.geometry.run"), "BUDGET", 1)
    module, data, family, wanted = network
    F = fisher(module, free(module), data, family=family, order="tensor")
    assert_near(F.matrix, wanted.mean(0))
    each = per_example_fisher(module, free(module), data, family=family, order="tensor")
    assert_near(each.materialize().matrix, wanted)


def test_diagonal_and_trace(network):
    module, data, family, wanted = network
    diagonal = fisher_diagonal(module, free(module), data, family=family)
    assert_near(torch.cat([d.flatten() for d in diagonal.values()]), wanted.mean(0).diagonal())
    assert {k: v.shape for k, v in diagonal.items()} == {k: v.shape for k, v in free(module).items()}
    trace = fisher_trace(module, free(module), data, family=family, reduction="sum")
    assert_near(trace, wanted.sum(0).trace())


def test_chosen_blocks(network):
    module, data, family, _ = network
    names = list(free(module))[-2:]
    whole = fisher(module, free(module), data, family=family)
    part = fisher(module, free(module), data, family=family, blocks=names)
    assert part.order.names == tuple(names)
    assert_near(part[names[0], names[-1]], whole[names[0], names[-1]])
    assert_near(part[names[-1]], whole[names[-1]])


def test_empirical_fisher_is_the_outer_product_of_the_gradients(network):
    module, data, family, _ = network
    eta, jacobian = plain_jacobian(module, data)
    y = family.sample(eta, generator=torch.Generator().manual_seed(1))
    g = (family.score(y, eta)[..., None] * jacobian).flatten(1, -2).sum(1)
    F = empirical_fisher(module, free(module), data, y, family=family, order="tensor", chunk_size=2)
    assert_near(F.matrix, g.T @ g / len(g))
    assert F.kind == "empirical"


def test_monte_carlo_fisher_approaches_the_exact_one(network):
    module, data, family, wanted = network
    generator = torch.Generator().manual_seed(0)
    F = monte_carlo_fisher(
        module, free(module), data, family=family, samples=2000, generator=generator, order="tensor"
    )
    error = (F.matrix - wanted.mean(0)).norm() / wanted.mean(0).norm()
    assert 1e-4 < error < 0.1


def test_a_loader_is_streamed():
    module, data, family = build("layer norm")
    loader = DataLoader(TensorDataset(data, torch.zeros(len(data))), batch_size=2)
    random = torch.get_rng_state()
    F = fisher(module, free(module), loader, family=family)
    assert_near(F.matrix, fisher(module, free(module), data, family=family).matrix)
    assert torch.equal(random, torch.get_rng_state())


def test_a_function_has_the_fisher_of_the_same_module():
    module, data, family = build("layer norm")
    function = lambda params, x: torch.func.functional_call(module, params, (x,))  # noqa: E731
    F = fisher(function, free(module), data, family=family)
    assert_near(F.matrix, fisher(module, free(module), data, family=family).matrix)


@pytest.mark.parametrize("route", ["layers", "vmap", "loop"])
def test_every_route_gives_the_same(route):
    module, data, family = build("LSTM, deep, both ways")
    wanted = fisher(module, free(module), data, family=family, route="batch")
    assert_near(fisher(module, free(module), data, family=family, route=route).matrix, wanted.matrix)


def test_float32_is_within_rounding():
    module, data, family = build("LSTM", dtype=torch.float32)
    F = fisher(module, free(module), data, family=family, order="tensor")
    double, data64, _ = build("LSTM", dtype=torch.float32)
    wanted = plain_case_fishers(double.double(), data64.double(), family).mean(0)
    assert_near(F.matrix.double(), wanted, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_of_a_thousand(dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    params = {"weight": 1000 * torch.randn(4, 3, generator=generator, dtype=torch.float64)}
    params["weight"][1] = params["weight"][0] + 1
    model = lambda p, x: torch.nn.functional.linear(x, p["weight"])  # noqa: E731
    F = fisher(model, {"weight": params["weight"].to(dtype)}, x.to(dtype), family=Categorical())
    p = (x @ params["weight"].T).softmax(1)
    off = torch.einsum("ni,nj,nd,ne->idje", -p, p, x, x).reshape(12, 12) / 6
    own = torch.einsum("ni,nd,ne->ide", p * (1 - p), x, x) / 6
    wanted = off.view(4, 3, 4, 3)
    wanted[range(4), :, range(4), :] = own
    assert F.matrix.isfinite().all()
    assert_near(F.matrix.double(), wanted.reshape(12, 12), 1e-3 if dtype is torch.float32 else 1e-10)


def test_the_order_is_stated():
    module = nn.Linear(1, 2)
    F = fisher(module, free(module), torch.ones(3, 1), family=Gaussian())
    assert list(F.order) == [("weight", (0, 0)), ("bias", (0,)), ("weight", (1, 0)), ("bias", (1,))]
    assert F["weight", "bias"].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_factors_of_a_glm_and_of_a_network_have_one_face():
    glm, params, data = problem("ln", "categorical")
    F, wanted = per_example_fisher(glm, params, data), closed_form_fisher(glm, params, data)
    assert_near(F.mean().matrix, wanted.matrix)
    assert_near(F.sum().matrix, wanted.matrix * len(data))
    assert_near(torch.stack([each.matrix for each in F]), F.matrix)


def test_functional_calls_by_keyword():
    f = torch.nn.functional

    def model(p, x):
        h = f.layer_norm(
            input=f.linear(input=x, weight=p["w"]), normalized_shape=(4,), weight=p["g"], bias=p["b"]
        )
        return f.rms_norm(f.group_norm(h, num_groups=2, weight=p["g"]), normalized_shape=(4,), weight=p["b"])

    generator = torch.Generator().manual_seed(0)
    shapes = {"w": (4, 3), "g": (4,), "b": (4,)}
    params = {k: torch.randn(s, generator=generator).double() for k, s in shapes.items()}
    x = torch.randn(5, 3, generator=generator).double()
    F = fisher(model, params, x, family=Categorical(), route="layers")
    assert_near(F.matrix, fisher(model, params, x, family=Categorical(), route="batch").matrix)
