"""The cells against the golden vectors, torch's own cells, and the paper's laws."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import normgeom as ng
from normgeom.models import from_torch, to_torch
from tests.models.cores import LAYERS, P, core, draw, gradients, route
from tests.models.golden import GOLDEN, layer
from tests.models.recurrent_oracle import ln_lstm

CASES = GOLDEN["cases"]
IDS = [f"{c['kind']}-{c['eps']}-{c['seed']}" for c in CASES]


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


@pytest.mark.parametrize("placement", [ng.Placement(), P(per_gate=True), P(joint=True)], ids=str)
def test_the_lstm_is_the_scalar_loop(placement):
    model, xs, h, c = core(ng.LNLSTM, placement=placement), draw(4, 5), draw(1, 6, seed=2), draw(1, 6, seed=3)
    parameters = {name.removeprefix("layer0."): value.tolist() for name, value in model.named_parameters()}
    options = {"per_gate": placement.per_gate, "joint": placement.joint}
    wanted = ln_lstm(parameters, xs.tolist(), h[0].tolist(), c[0].tolist(), 1e-5, **options)
    assert (model(xs, (h, c))[0] - torch.tensor(wanted, dtype=torch.float64)).abs().max() < 1e-12


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bias", [True, False])
def test_the_twins_are_torchs_own(kind, bias):
    theirs = kind(3, 4, 2, bias=bias, bidirectional=True, batch_first=True, dtype=torch.float64)
    ours, x = from_torch(theirs), draw(5, 7, 3)
    state = (draw(4, 5, 4), draw(4, 5, 4, seed=2)) if kind is nn.LSTM else draw(4, 5, 4)
    for mine, other in zip(flat(ours(x, state)), flat(theirs(x, state)), strict=True):
        assert (mine - other).abs().max() < 1e-14
    back = to_torch(ours).state_dict()
    assert all(torch.equal(back[name], value) for name, value in theirs.state_dict().items())


def flat(result):
    outputs, state = result
    return (outputs, *state) if isinstance(state, tuple) else (outputs, state)


def test_what_torch_has_no_module_for_is_refused():
    with pytest.raises(
        ValueError, match="torch has no layer-normalized cell: placement must be none; got Placement"
    ):
        to_torch(ng.LNLSTM(3, 4))
    with pytest.raises(ValueError, match="tanh and no projection"):
        from_torch(nn.LSTM(3, 4, proj_size=2))
    with pytest.raises(TypeError, match=r"must be an nn\.RNN, nn\.LSTM or nn\.GRU; got Linear"):
        from_torch(nn.Linear(3, 4))
    with pytest.raises(TypeError, match="must be an LNRNN, LNLSTM or LNGRU; got DRAWLSTM"):
        to_torch(ng.DRAWLSTM(3, 4))


FORMS = {
    "paper": (P(), -0.127642, [0.0, 0.0, 0.267]),
    "joint": (P(joint=True), -0.106268, [0.119966908734, 0.0, 0.090]),
    "joint, per gate": (P(joint=True, per_gate=True), -0.091684, [0.105198407293, 0.0, 0.0]),
}


@pytest.mark.parametrize("form", FORMS)
def test_three_lstms_that_are_all_called_layer_normalized(form):
    """LST-01: what the scale of W_x alone, of both weights, of one gate of both does to the output."""
    placement, first, moved = FORMS[form]
    cell = ng.LNLSTMCell(3, 5, placement=placement, eps=0.0, dtype=torch.float64)
    generator, units = torch.Generator().manual_seed(0), torch.arange(20).view(4, 5)
    by_x, by_h, b, x, h, c = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((20, 3), (20, 5), (20,), (1, 3), (1, 5), (1, 5))
    )
    order, gate = units[[1, 0, 2, 3]].flatten(), torch.ones(20, 1, dtype=torch.float64)
    gate[:5] = 3.0
    with torch.no_grad():
        cell.bias.copy_(b[order])
    outputs = [
        torch.func.functional_call(
            cell, {"weight_input": a[order], "weight_recurrent": w[order]}, (x, (h, c))
        )[0]
        for a, w in ((by_x, by_h), (2 * by_x, by_h), (2 * by_x, 2 * by_h), (gate * by_x, gate * by_h))
    ]
    assert float(outputs[0].detach()[0, 0]) == pytest.approx(first, abs=1e-6)
    apart = [float((y - outputs[0]).abs().max().detach()) for y in outputs[1:]]
    assert apart[:2] == pytest.approx(moved[:2], abs=1e-11)
    assert apart[2] == pytest.approx(moved[2], abs=5e-4)


def test_the_carried_cell_state_is_not_normalized():
    """LST-03: with open gates c grows by one candidate a step, to 200, and h does not see its scale.

    Normalized at every step, as in a layer of the same name, it would stay below sqrt(H - 1): at 1.4638.
    """
    cell = ng.LNLSTMCell(1, 6, placement=P(False, False, True), eps=0.0, dtype=torch.float64)
    candidate = torch.linspace(0.2, 1.0, 6, dtype=torch.float64).atanh().clamp_max(20.0)
    with torch.no_grad():
        [value.zero_() for name, value in cell.named_parameters() if "cell" not in name]
        cell.norm_input.bias.copy_(torch.cat([torch.full((18,), 40.0, dtype=torch.float64), candidate]))
    state, seen = (torch.zeros(1, 6, dtype=torch.float64),) * 2, []
    for _ in range(200):
        state = cell(torch.zeros(1, 1, dtype=torch.float64), state)
        seen.append(state[0])
    assert abs(float(state[1].detach().max()) - 200.0) < 1e-6
    assert (seen[0] - seen[-1]).abs().max() < 1e-9
    for _ in range(200):
        h, c = cell(torch.zeros(1, 1, dtype=torch.float64), state)
        state = h, torch.nn.functional.layer_norm(c, (6,), eps=1e-5)
    assert float(state[1].detach().abs().max()) == pytest.approx(1.46384559463, abs=1e-9)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("way", ["kernel", "plain", "definition"])
def test_a_zero_state_has_finite_gradients(kind, dtype, way, monkeypatch):
    model, x = core(kind, dtype=dtype), draw(4, 3, 5, dtype=dtype).requires_grad_()
    zero = torch.zeros(1, 3, 6, dtype=dtype, requires_grad=True)
    state = (zero, zero * 1) if model.layer0.has_cell_state else zero
    with route(way, monkeypatch):
        outputs, found = gradients(model, x, state=state)
    assert outputs.isfinite().all()
    assert all(g.isfinite().all() for g in found)
    assert outputs.dtype == dtype


def test_bias_placement_leaves_a_bias_for_each_product():
    names = lambda **options: {n for n, _ in ng.LNLSTMCell(3, 4, **options).named_parameters()}  # noqa: E731
    weights, none = {"weight_input", "weight_recurrent"}, ng.Placement.none()
    assert names(placement=none) == weights | {"norm_input.bias", "norm_recurrent.bias"}
    assert names(placement=none, bias=False) == weights
    assert "bias" in names()
    assert "bias" not in names(bias=False)
    assert ng.LNGRUCell(3, 4).norm_recurrent.segments == (8, 4)


def test_gain_and_bias_start_where_they_are_told_to():
    layer = ng.LNLSTM(3, 4, initial_gain=0.1, initial_bias=0.5)
    values = dict(layer.named_parameters())
    assert all((v == 0.1).all() for n, v in values.items() if n.endswith("gain"))
    assert (values["layer0.norm_cell.bias"] == 0.5).all()
    assert all(v.abs().max() <= 0.5 for n, v in values.items() if "norm" not in n)


def test_parameters_drawn_from_a_generator_are_the_same_again(generator):
    first, second = ng.LNLSTM(3, 4), ng.LNLSTM(3, 4)
    first.reset_parameters(generator=generator)
    second.reset_parameters(generator=generator.manual_seed(0))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("slot", ["weight_ih_l0", "bias_ih_l0"])
def test_weights_that_torch_computes_are_not_converted(slot):
    lstm = nn.LSTM(3, 4)
    prune.l1_unstructured(lstm, slot, 2)
    with pytest.raises(ValueError, match=f"must be a parameter of its own; {slot} are not. Pruning is"):
        from_torch(lstm)


@pytest.mark.parametrize(("part", "slot"), [("layer0", "weight_input"), ("layer0.norm_input", "bias")])
def test_weights_that_a_cell_computes_are_not_converted(part, slot):
    lstm = from_torch(nn.LSTM(3, 4))
    prune.l1_unstructured(lstm.get_submodule(part), slot, 2)
    with pytest.raises(ValueError, match=f"must be a parameter of its own; {part}.{slot} are not. Pruning"):
        to_torch(lstm)


def test_sigma_is_what_the_norm_divides_by():
    norm, summed = ng.LNGRUCell(3, 4, eps=0.0).norm_recurrent, draw(7, 12, dtype=torch.float32)
    wanted = torch.stack([summed[:, :8].std(1, correction=0), summed[:, 8:].std(1, correction=0)], 1)
    assert torch.allclose(norm.sigma(summed), wanted)
