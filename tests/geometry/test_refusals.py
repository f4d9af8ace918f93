"""Models, data and arguments for which there is no Fisher matrix."""

import pytest
import torch
from torch import nn

from normgeom.geometry.families import Categorical, Gaussian
from normgeom.geometry.fisher import (
    empirical_fisher,
    fisher,
    monte_carlo_fisher,
)
from tests.geometry.networks import build, free

DROPOUTS = {
    "module": nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3)),
    "alpha": nn.Sequential(nn.Linear(3, 4), nn.AlphaDropout(0.5)),
    "channels": nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2)), nn.Dropout1d(0.5), nn.Flatten()),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_active_dropout_is_refused(name):
    with pytest.raises(ValueError, match="dropout is active"):
        fisher(DROPOUTS[name], free(DROPOUTS[name]), torch.randn(5, 3), family=Categorical())


@pytest.mark.parametrize(
    "layer",
    [
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True),
        nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True),
    ],
    ids=["encoder", "LSTM"],
)
def test_active_dropout_inside_a_layer_is_refused(layer):
    with pytest.raises(ValueError, match="dropout is active"):
        fisher(layer, free(layer), torch.randn(3, 2, 4), family=Gaussian())


def test_other_randomness_is_refused():
    noisy = lambda p, x: x @ p["w"] + torch.randn(len(x), 2)  # noqa: E731
    x, random = torch.randn(5, 3), torch.get_rng_state()
    with pytest.raises(ValueError, match="two evaluations differ"):
        fisher(noisy, {"w": torch.ones(3, 2)}, x, family=Categorical())
    assert torch.equal(random, torch.get_rng_state())


def test_errors_say_what_to_do():
    module, data, family = build("linear")
    params = free(module)
    with pytest.raises(ValueError, match="a family must be given"):
        fisher(module, params, data)
    with pytest.raises(ValueError, match="blocks must name"):
        fisher(module, params, data, family=family, blocks=["gain"])
    with pytest.raises(TypeError, match=r"write \['weight'\]"):
        fisher(module, params, data, family=family, blocks="weight")
    with pytest.raises(ValueError, match="no parameter 'gain'"):
        fisher(module, {"gain": torch.ones(3)}, data, family=family)
    with pytest.raises(ValueError, match="reduction must be"):
        fisher(module, params, data, family=family, reduction="none")
    with pytest.raises(ValueError, match="order must be"):
        fisher(module, params, data, family=family, order="layer")
    with pytest.raises(ValueError, match=r"shape \(cases, ..., outputs\)"):
        fisher(lambda p, x: x[:, 0] * p["g"], {"g": torch.ones(())}, torch.ones(2, 2), family=family)
    with pytest.raises(ValueError, match="one target for each"):
        empirical_fisher(module, params, data, family=family)
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        fisher(module, params, data, family=family, chunk_size=0)
    with pytest.raises(ValueError, match=r"chunk_size must be at least 1, and a whole number; got 2\.5"):
        fisher(module, params, data, family=family, chunk_size=2.5)
    with pytest.raises(ValueError, match="samples must be at least 1"):
        monte_carlo_fisher(module, params, data, family=family, samples=0, generator=torch.Generator())
    with pytest.raises(ValueError, match="blocks must name at least one parameter"):
        fisher(module, params, data, family=family, blocks=[])
    with pytest.raises(TypeError, match="the model must be"):
        fisher(3, params, data, family=family)


@pytest.mark.parametrize(
    "data", [torch.ones(2, 3), (torch.ones(2, 3).double(),) * 2, torch.ones(2, 5).double()]
)
def test_data_that_the_model_cannot_take_is_named(data):
    module, _, family = build("linear")
    with pytest.raises(ValueError, match=r"take the data as it is given: \(2, \d\) torch.float"):
        fisher(module, free(module), data, family=family)


def test_all_cases_are_named_though_few_are_tried():
    module, _, family = build("linear")
    with pytest.raises(ValueError, match=r"take the data as it is given: \(50, 9\) torch.float64"):
        fisher(module, free(module), torch.ones(50, 9).double(), family=family)


def test_a_coupled_model_refuses_a_route_by_case():
    module, data, family = build("batch norm of one's own")
    with pytest.raises(ValueError, match="couples its cases"):
        fisher(module, free(module), data, family=family, route="vmap")


def test_frozen_and_tied_names():
    module, data, family = build("tied weights")
    both = dict(module.named_parameters(remove_duplicate=False))
    with pytest.raises(ValueError, match="is tied to another parameter"):
        fisher(module, both, data, family=family)
    frozen = nn.Linear(3, 2).requires_grad_(False)
    with pytest.raises(ValueError, match="every parameter given is frozen"):
        fisher(frozen, dict(frozen.named_parameters()), torch.ones(2, 3), family=family)


def test_a_matrix_too_large_is_refused_with_its_size():
    module = nn.Linear(3000, 1000)
    with pytest.raises(ValueError, match=r"3001000 parameters needs \d+"):
        fisher(module, free(module), torch.ones(2, 3000), family=Categorical())


def test_an_embedding_that_changes_its_weight_is_refused():
    module = nn.Embedding(5, 3, max_norm=1.0)
    with pytest.raises(ValueError, match="max_norm"):
        fisher(module, free(module), torch.tensor([1, 2]), family=Categorical())


def test_derivatives_that_are_not_finite_are_refused():
    model = lambda p, x: (x * p["w"]).abs().sqrt()  # noqa: E731
    with pytest.raises(ValueError, match="those in w are not"):
        fisher(model, {"w": torch.zeros(2)}, torch.ones(3, 2), family=Gaussian())
