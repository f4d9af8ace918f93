import pytest
import torch
from torch import nn

from normgeom.models import DRAWLSTM, LNGRU, LNLSTM, LNRNN, CharLM, RowDigits

CORES = [nn.LSTM, nn.GRU, nn.RNN, LNLSTM, LNGRU, LNRNN, DRAWLSTM]
IDS = torch.tensor([[0, 4], [3, 1], [2, 2], [1, 0]])


@pytest.mark.parametrize("core", CORES)
def test_logits_are_a_readout_of_the_core_on_one_hot_vectors(core):
    model = CharLM(core(5, 6, 2), 5).double()
    logits, state = model(IDS)
    outputs, expected = model.core(torch.eye(5, dtype=torch.float64)[IDS])
    torch.testing.assert_close(logits, outputs @ model.readout.weight.T + model.readout.bias)
    torch.testing.assert_close(state, expected)


@pytest.mark.parametrize("core", CORES)
def test_a_text_in_two_parts_is_the_text(core):
    model = CharLM(core(5, 6), 5).double()
    first, state = model(IDS[:1])
    second, _ = model(IDS[1:], state)
    torch.testing.assert_close(torch.cat((first, second)), model(IDS)[0])


@pytest.mark.parametrize("core", CORES)
def test_no_logit_depends_on_a_later_character(core):
    model = CharLM(core(5, 6), 5)
    changed = IDS.clone()
    changed[2:] = 4
    torch.testing.assert_close(model(IDS)[0][:2], model(changed)[0][:2], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_a_projected_lstm():
    assert CharLM(nn.LSTM(5, 6, proj_size=3), 5)(IDS)[0].shape == (4, 2, 5)


@pytest.mark.parametrize("core", CORES)
def test_digits_by_rows(core):
    model, rows = RowDigits(core(3, 6), classes=4).double(), torch.rand(8, 5, 3, dtype=torch.float64)
    expected = model.core(rows)[0][-1] @ model.readout.weight.T + model.readout.bias
    torch.testing.assert_close(model(rows), expected)
    assert model(rows).shape == (5, 4)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CharLM(nn.LSTM(5, 6), 4), ValueError, "input_size 4, the size of the vocabulary; got 5"),
        (lambda: CharLM(nn.LSTM(5, 6), 0), ValueError, "characters must be an integer of at least 1; got 0"),
        (lambda: CharLM(nn.Linear(5, 6), 5), TypeError, "core must be a recurrent module .* got Linear"),
        (lambda: CharLM(nn.LSTM, 5), TypeError, "core must be a recurrent module .* got type"),
        (lambda: CharLM(LNLSTM(5, 6, batch_first=True), 5), ValueError, "core must take time first"),
        (lambda: CharLM(LNLSTM(5, 6, bidirectional=True), 5), ValueError, "must read forwards only"),
        (lambda: RowDigits(nn.GRU(8, 6), classes=1), ValueError, "classes must be at least 2; got 1"),
        (lambda: RowDigits(nn.GRU(8, 6, batch_first=True)), ValueError, "core must take time first"),
        (lambda: RowDigits(nn.Tanh()), TypeError, "core must be a recurrent module"),
        (lambda: CharLM(nn.LSTM(5, 6), 5)(IDS[0]), ValueError, r"\(time, batch\); got .* shape \(2,\)"),
        (lambda: CharLM(nn.LSTM(5, 6), 5)(IDS.float()), ValueError, "ids must be integers .* torch.float32"),
        (lambda: CharLM(nn.LSTM(5, 6), 5)(IDS - 1), ValueError, "ids must be from 0 to 4; got -1 to 3"),
        (lambda: CharLM(LNLSTM(5, 6), 5)(IDS + 1), ValueError, "ids must be from 0 to 4; got 1 to 5"),
        (lambda: RowDigits(nn.GRU(8, 6))(torch.ones(8, 8)), ValueError, r"rows must be .* of shape \(8, 8\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("core", [LNLSTM, nn.LSTM])
def test_ids_out_of_range_are_named(core):
    with pytest.raises(ValueError, match="ids must be from 0 to 4; got 9 to 9"):
        CharLM(core(5, 6), 5)(torch.full((3, 2), 9))


def test_what_is_no_tensor_and_a_readout_of_another_type():
    with pytest.raises(TypeError, match="ids must be a tensor; got list"):
        CharLM(LNLSTM(5, 6), 5)([[1]])
    with pytest.raises(TypeError, match=r"outputs must have the dtype of the weights, torch\.float32"):
        CharLM(LNLSTM(5, 6).half(), 5)(torch.ones(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="characters must be an integer of at least 1; got '5'"):
        CharLM(LNLSTM(5, 6), "5")
