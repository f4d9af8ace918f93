"""The forms of input and state that torch's recurrent modules take."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import normgeom as ng
from tests.models.cores import LAYERS, P, core, draw, gradients, route

LENGTHS = torch.tensor([3, 7, 1, 5])
WAYS = ["kernel", "plain", "definition"]


def states(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("way", WAYS)
def test_packed_sequences_are_the_cases_run_alone(kind, way, monkeypatch):
    model, x = core(kind, layers=2, bidirectional=True), draw(7, 4, 5)
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    with route(way, monkeypatch):
        outputs, final = model(packed)
        padded, lengths = pad_packed_sequence(outputs)
        assert torch.equal(lengths, LENGTHS)
        for n, length in enumerate(LENGTHS):
            alone, last = model(x[:length, n : n + 1])
            assert (padded[:length, n] - alone[:, 0]).abs().max() < 1e-13
            for some, one in zip(states(final), states(last), strict=True):
                assert (some[:, n] - one[:, 0]).abs().max() < 1e-13


@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_packed_sequences(way, monkeypatch):
    model, x = core(ng.LNLSTM, bidirectional=True), draw(7, 4, 5).requires_grad_()
    with route(way, monkeypatch):
        outputs, (_, c) = model(pack_padded_sequence(x, LENGTHS, enforce_sorted=False))
        found = torch.autograd.grad(outputs.data.square().sum() + c.sum(), [x, *model.parameters()])
        alone = [model(x[:length, n : n + 1]) for n, length in enumerate(LENGTHS)]
        value = sum(out.square().sum() + last[1].sum() for out, last in alone)
        wanted = torch.autograd.grad(value, [x, *model.parameters()])
    assert max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True)) < 1e-12


def test_packed_sequences_are_torchs_own_for_the_twin():
    theirs, x = nn.LSTM(5, 6, 2, bidirectional=True, dtype=torch.float64), draw(7, 4, 5)
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    start = draw(4, 4, 6), draw(4, 4, 6, seed=2)
    (ours, mine), (wanted, other) = ng.models.from_torch(theirs)(packed, start), theirs(packed, start)
    assert (ours.data - wanted.data).abs().max() < 1e-14
    assert all((a - b).abs().max() < 1e-14 for a, b in zip(mine, other, strict=True))


@pytest.mark.parametrize("kind", LAYERS)
def test_batch_first_and_unbatched(kind):
    model, x = core(kind), draw(7, 4, 5)
    first = core(kind, batch_first=True)
    outputs, final = model(x)
    assert torch.equal(first(x.transpose(0, 1))[0], outputs.transpose(0, 1))
    alone, last = model(x[:, 2])
    assert (alone - outputs[:, 2]).abs().max() < 1e-13
    assert states(last)[0].shape == (1, 6)
    assert (states(last)[0] - states(final)[0][:, 2]).abs().max() < 1e-13


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("placement", [None, P(True, True, False, joint=True)], ids=["paper", "joint"])
@pytest.mark.parametrize("way", WAYS)
def test_ids_are_one_hot_inputs(kind, placement, way, monkeypatch):
    model = core(kind, placement=placement)
    ids = torch.randint(5, (7, 4), generator=torch.Generator().manual_seed(0))
    with route(way, monkeypatch):
        found, wanted = gradients(model, ids), gradients(model, torch.eye(5, dtype=torch.float64)[ids])
    assert (found[0] - wanted[0]).abs().max() < 1e-13
    assert max(float((a - b).abs().max()) for a, b in zip(found[1], wanted[1], strict=True)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16], ids=str)
@pytest.mark.parametrize("placement", [None, P(joint=True)], ids=["paper", "joint"])
def test_ids_may_be_of_any_type_of_integers(dtype, placement):
    model, ids = core(ng.LNLSTM, placement=placement), torch.tensor([[0, 1], [2, 3], [4, 0]])
    assert torch.equal(model(ids.to(dtype))[0], model(ids)[0])
    assert torch.equal(model.layer0(ids[0].to(dtype))[0], model.layer0(ids[0])[0])


def test_ids_packed_and_unbatched():
    model, ids = core(ng.LNLSTM), torch.tensor([[0, 1], [2, 3], [4, 0]])
    packed = pack_padded_sequence(ids, torch.tensor([2, 3]), enforce_sorted=False)
    assert (pad_packed_sequence(model(packed)[0])[0][:2, 0] - model(ids[:2, 0])[0]).abs().max() < 1e-14


@pytest.mark.parametrize("kind", LAYERS)
def test_a_sequence_in_two_parts_is_the_whole(kind):
    model, x = core(kind, layers=2), draw(7, 4, 5)
    first, state = model(x[:3])
    assert (torch.cat([first, model(x[3:], state)[0]]) - model(x)[0]).abs().max() < 1e-13


def test_dropout_is_between_layers_and_in_training_alone():
    model, x = core(ng.LNLSTM, layers=2, dropout=0.5), draw(7, 4, 5)
    assert not torch.equal(model(x)[0], model(x)[0])
    model.eval()
    assert torch.equal(model(x)[0], model(x)[0])
    single = core(ng.LNLSTM, dropout=0.5)
    assert torch.equal(single(x)[0], single(x)[0])


def test_outputs_may_be_written_into():
    model, x = core(ng.LNLSTM), draw(7, 4, 5)
    wanted = torch.autograd.grad(model(x)[0].relu().sum(), model.layer0.weight_recurrent)[0]
    found = torch.autograd.grad(model(x)[0].relu_().sum(), model.layer0.weight_recurrent)[0]
    assert torch.equal(found, wanted)
