"""Gradients of every case apart, and the Fisher matrix of a classifier with a recurrent core."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import pack_padded_sequence

import normgeom as ng
from normgeom.models import per_example_gradients
from tests.models.cores import LAYERS, REPARAMETRIZED, P, core, draw, route
from tests.models.recurrent_oracle import case_by_case_gradients
from tests.oracles import plain_case_fishers


def apart(found, wanted):
    assert found.keys() == wanted.keys()
    return max(float((found[k] - w).abs().max() / (w.abs().max() + 1e-6)) for k, w in wanted.items())


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("placement", [None, P.none(), P(True, True, False, joint=True)], ids=str)
@pytest.mark.parametrize("way", ["kernel", "plain", "definition"])
def test_they_are_the_gradients_of_the_cases_alone(kind, placement, way, monkeypatch):
    model, x = core(kind, layers=2, bidirectional=True, placement=placement), draw(5, 3, 5)
    cotangent = draw(5, 3, 12, seed=4)
    with route(way, monkeypatch):
        found = per_example_gradients(model, x, cotangent)
    assert apart(found, case_by_case_gradients(model, x, cotangent)) < 1e-11


@pytest.mark.parametrize("way", ["kernel", "plain", "definition"])
def test_of_ids(way, monkeypatch):
    model, ids = core(ng.LNLSTM), torch.tensor([[0, 1, 4], [2, 2, 2], [0, 3, 1]])
    cotangent = draw(3, 3, 6, seed=4)
    with route(way, monkeypatch):
        found = per_example_gradients(model, ids, cotangent)
    assert apart(found, case_by_case_gradients(model, ids, cotangent)) < 1e-11


def test_of_packed_sequences_in_the_order_of_the_input():
    model, x, lengths = core(ng.LNGRU, bidirectional=True), draw(5, 3, 5), torch.tensor([2, 5, 3])
    packed, cotangent = (
        pack_padded_sequence(v, lengths, enforce_sorted=False) for v in (x, draw(5, 3, 12, seed=4))
    )
    found = per_example_gradients(model, packed, cotangent)
    for n, length in enumerate(lengths):
        weight = draw(5, 3, 12, seed=4)[:length, n : n + 1]
        alone = case_by_case_gradients(model, x[:length, n : n + 1], weight)
        assert apart({k: v[n : n + 1] for k, v in found.items()}, alone) < 1e-11


def test_batch_first_and_an_initial_state_leave_the_model_as_found():
    model, x, cotangent = core(ng.LNLSTM, batch_first=True), draw(3, 5, 5), draw(3, 5, 6, seed=4)
    state, before = (draw(1, 3, 6), draw(1, 3, 6, seed=2)), [p.clone() for p in model.parameters()]
    found = per_example_gradients(model, x, cotangent, state=state)
    whole = torch.autograd.grad((model(x, state)[0] * cotangent).sum(), list(model.parameters()))
    assert max((f.sum(0) - w).abs().max() for f, w in zip(found.values(), whole, strict=True)) < 1e-12
    assert all(torch.equal(a, b) and a.grad is None for a, b in zip(model.parameters(), before, strict=True))


def test_wrong_arguments_are_named():
    model = core(ng.LNLSTM)
    with pytest.raises(TypeError, match="the core must be a recurrent layer of normgeom; got LSTM"):
        per_example_gradients(nn.LSTM(5, 6), draw(3, 2, 5), draw(3, 2, 6))
    with pytest.raises(ValueError, match="the input must have an axis of cases"):
        per_example_gradients(model, draw(3, 5), draw(3, 6))
    with pytest.raises(ValueError, match=r"the outputs' shape \(3, 2, 6\); got \(3, 2, 5\)"):
        per_example_gradients(model, draw(3, 2, 5), draw(3, 2, 5))
    packed = pack_padded_sequence(draw(3, 2, 5), torch.tensor([3, 2]))
    with pytest.raises(TypeError, match="the cotangent must be of the outputs' kind, PackedSequence"):
        per_example_gradients(model, packed, draw(3, 2, 6))
    with pytest.raises(TypeError, match="the cotangent must be a tensor; got ndarray"):
        per_example_gradients(model, draw(3, 2, 5), draw(3, 2, 6).numpy())


def test_no_mode_of_the_caller_s_takes_the_gradients_away():
    model, x, cotangent = core(ng.LNLSTM), draw(3, 2, 5), draw(3, 2, 6)
    wanted = per_example_gradients(model, x, cotangent)
    with torch.inference_mode():
        found = per_example_gradients(model, x, cotangent)
    assert apart(found, wanted) == 0


@pytest.mark.filterwarnings("ignore:.*_norm.*:FutureWarning")
@pytest.mark.parametrize("how", REPARAMETRIZED)
@pytest.mark.parametrize("way", ["kernel", "plain", "definition"])
def test_they_are_those_in_the_parameters_that_weights_come_from(how, way, monkeypatch):
    model, x, cotangent = core(ng.LNLSTM, 6, eps=0.1), draw(5, 3, 6), draw(5, 3, 6, seed=4)
    REPARAMETRIZED[how](model)
    with route(way, monkeypatch):
        found = per_example_gradients(model, x, cotangent)
    model.requires_grad_(True)
    assert apart(found, case_by_case_gradients(model, x, cotangent)) < 1e-11


def test_a_norm_in_training_goes_on_from_the_state_it_had():
    model, x = core(ng.LNLSTM, 6), draw(5, 3, 6)
    parametrizations.spectral_norm(model.layer0, "weight_recurrent")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = per_example_gradients(model, x, torch.ones(5, 3, 6, dtype=torch.float64))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    model(x)[0].sum().backward()
    for name, value in model.named_parameters():
        assert torch.allclose(found[name].sum(0), value.grad)


def test_a_gain_that_a_hook_of_ones_own_computes_is_refused():
    model = core(ng.LNLSTM)
    prune.l1_unstructured(model.layer0.norm_cell, "gain", 2)
    model.layer0.norm_cell.register_forward_pre_hook(lambda *_: None)
    with pytest.raises(ValueError, match="gain and bias of norm_cell must be parameters, or computed by"):
        per_example_gradients(model, draw(5, 3, 5), draw(5, 3, 6))


class Classifier(nn.Module):
    """A layer and a readout of its last step."""

    def __init__(self, kind):
        super().__init__()
        self.core, self.readout = core(kind, 2, 3, batch_first=True), nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x):
        return self.readout(self.core(x)[0][:, -1])


@pytest.mark.parametrize("kind", LAYERS)
def test_the_fisher_matrix_of_a_classifier(kind):
    net, x, family = Classifier(kind), draw(4, 3, 2), ng.Categorical()
    params = {name: value.detach() for name, value in net.named_parameters()}
    wanted = plain_case_fishers(net, x, family)
    found = ng.fisher(net, params, x, family=family, order="tensor").matrix
    each = ng.per_example_fisher(net, params, x, family=family, order="tensor").matrix
    assert (found - wanted.mean(0)).abs().max() < 1e-11 * wanted.abs().max()
    assert (each - wanted).abs().max() < 1e-11 * wanted.abs().max()


def test_the_biases_of_both_norms_and_b_are_one_parameter():
    """The Fisher matrix annihilates their differences, and has the rank of one of them."""
    net, x = Classifier(ng.LNLSTM), draw(16, 4, 2)
    params = {name: value.detach() for name, value in net.named_parameters()}
    names = ["core.layer0.bias", "core.layer0.norm_input.bias", "core.layer0.norm_recurrent.bias"]
    F = ng.fisher(net, params, x, family=ng.Gaussian(), order="tensor")
    blocks = [[F[a, b] for b in names] for a in names]
    assert all((block - blocks[0][0]).abs().max() < 1e-12 for row in blocks for block in row)
    whole = torch.cat([torch.cat(row, 1) for row in blocks])
    rank = lambda matrix: int(torch.linalg.matrix_rank(matrix, rtol=1e-9, hermitian=True))  # noqa: E731
    assert rank(whole) == rank(blocks[0][0]) <= 12


def test_a_bias_before_the_norm_is_free_in_its_mean_and_one_after_it_doubles_beta():
    """FIS-09: pre-norm bias and beta, rank 2H - 1; post-norm bias and beta, or two betas, rank H."""
    summed, cell = draw(40, 4), ng.models.places.GainBiasNorm((4,), eps=0.0).double()
    normalized = cell.normalized
    kinds = {
        "pre-bias + beta": lambda t: normalized(summed + t[0]) + t[1],
        "post-bias + beta": lambda t: normalized(summed) + t[0] + t[1],
        "two betas": lambda t: normalized(summed) + t[0] + normalized(draw(40, 4, seed=8)) + t[1],
    }
    at, ranks = draw(2, 4, seed=3), {}
    for name, function in kinds.items():
        jacobian = torch.func.jacrev(lambda t, f=function: f(t).tanh())(at).reshape(-1, 8)
        ranks[name] = int(torch.linalg.matrix_rank(jacobian, rtol=1e-6))
    assert ranks == {"pre-bias + beta": 7, "post-bias + beta": 4, "two betas": 4}
