"""The cells against the golden vectors, torch's own cells, and the paper's laws."""

import pytest
import torch

import normgeom as ng
from tests.models.golden import GOLDEN, layer

CASES = GOLDEN["cases"]
IDS = [f"{c['kind']}-{c['eps']}-{c['seed']}" for c in CASES]
CELLS = [ng.LNRNNCell, ng.LNLSTMCell, ng.LNGRUCell, ng.DRAWLSTMCell]
LAYERS = [ng.LNRNN, ng.LNLSTM, ng.LNGRU, ng.DRAWLSTM]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_golden_vectors_over_a_sequence(case):
    model, x, start, wanted = layer(case)
    outputs, final = model(x, start)
    last = torch.cat([s[0] for s in final]) if isinstance(final, tuple) else final[0]
    assert (outputs - wanted[:, :3]).abs().max() < 1e-12
    assert (last - wanted[-1]).abs().max() < 1e-12


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_golden_vectors_step_by_step(case):
    model, x, start, wanted = layer(case)
    state = tuple(s[0] for s in start) if isinstance(start, tuple) else start[0]
    for into, want in zip(x, wanted, strict=True):
        state = model.layer0(into, state)
        assert (torch.cat(state if isinstance(state, tuple) else (state,)) - want).abs().max() < 1e-12


@pytest.mark.parametrize("seeded_fault", ["norm_recurrent.gain", "norm_cell.bias", "bias"])
def test_a_parameter_that_is_a_little_off_misses_the_golden_vector(seeded_fault):
    model, x, start, wanted = layer(next(c for c in CASES if c["kind"] == "ln_lstm"))
    with torch.no_grad():
        model.layer0.get_parameter(seeded_fault).mul_(1.001)
    assert (model(x, start)[0] - wanted[:, :3]).abs().max() > 1e-6
