import pytest
import torch
from torch import nn

from normgeom.models import LNLSTM, CharLM, RowDigits
from normgeom.training import NextCharacter, SequentialDigits, evaluate
from tests.training.oracles import bits_by_hand, small


@pytest.mark.parametrize("core", [nn.LSTM, nn.GRU, LNLSTM])
def test_bits_per_character_in_one_piece_are_the_definition(core):
    model, task = small(core=core, pieces=1, dtype=torch.float64)
    found = evaluate(model, task)
    bits, accuracy, count = bits_by_hand(model, [task.corpus.held_out.tolist()])
    assert found.bits == pytest.approx(bits, rel=1e-12)
    assert (found.accuracy, found.targets) == (accuracy, count)


@pytest.mark.parametrize("length", [1, 4, 50])
def test_in_pieces_only_the_context_is_cut(length):
    model, task = small(pieces=3, length=length, dtype=torch.float64)
    ids = task.corpus.held_out.tolist()
    width = -(-(len(ids) - 1) // 3)
    pieces = [ids[k * width : (k + 1) * width + 1] for k in range(3)]
    bits, accuracy, count = bits_by_hand(model, pieces)
    found = evaluate(model, task)
    assert found.bits == pytest.approx(bits, rel=1e-12)
    assert (found.accuracy, found.targets) == (accuracy, count)


def test_equal_probabilities_cost_the_logarithm_of_their_number():
    model, task = small()
    nn.init.zeros_(model.readout.weight)
    nn.init.zeros_(model.readout.bias)
    assert evaluate(model, task).bits == pytest.approx(torch.tensor(task.classes).log2().item())


def test_digits():
    task = SequentialDigits(batch_size=8, dtype=torch.float64)
    model = RowDigits(nn.RNN(8, 5)).double()
    batches = list(task.held_out())
    rows, labels = torch.cat([b.inputs for b in batches], 1), torch.cat([b.targets for b in batches])
    probabilities = model(rows).softmax(-1)
    found = evaluate(model, task)
    assert found.bits == pytest.approx(-probabilities[range(360), labels].log2().mean().item(), rel=1e-12)
    assert (found.accuracy, found.targets) == ((probabilities.argmax(1) == labels).double().mean(), 360)


def test_the_model_is_left_as_found():
    _, task = small()
    model = CharLM(nn.LSTM(task.classes, 6, num_layers=2, dropout=0.5), task.classes)
    model.readout.eval()
    state = torch.get_rng_state()
    assert evaluate(model, task) == evaluate(model, task)
    assert (model.training, model.core.training, model.readout.training) == (True, True, False)
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())


def test_another_vocabulary_is_refused():
    model, task = small()
    other = NextCharacter(task.corpus.from_string("ab" * 40), length=5, batch_size=4)
    with pytest.raises(ValueError, match=rf"the 2 classes of the task apart; it has {task.classes}"):
        evaluate(model, other)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_model_and_no_task():
    model, task = small()
    with pytest.raises(TypeError, match=r"the model must be an nn\.Module; got str"):
        evaluate("model", task)
    with pytest.raises(TypeError, match=r"the task must be one such as NextCharacter .*; got NoneType"):
        evaluate(model, None)
