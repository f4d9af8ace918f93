"""States and gradients over many steps: measured by another route, against exact laws, and as drawn."""

import dataclasses
import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from analyses import __main__ as main
from analyses import _run, hidden_state_stability
from analyses._mean_field import layer_norm_rnn_rate, rnn_rate
from analyses._states import CELLS, norms, root_mean_square, slope
from normgeom.training import Corpus

CORPUS = Corpus.from_novel()
SIZES = {"steps": 12, "cases": 3, "hidden": 10, "device": "cpu"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("stability")
    assert main.main(["hidden_state_stability", "--quick", "--out", str(out)]) == 0
    return out


@pytest.fixture
def rows(written):
    return json.loads((written / "hidden_state_stability.json").read_text())


def test_gradients_of_an_rnn_are_products_of_jacobians():
    make, placement, _ = CELLS["RNN"]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        cell = make(CORPUS.vocabulary, 10, placement=placement, dtype=torch.float64)
        readout = torch.nn.Linear(10, CORPUS.vocabulary, dtype=torch.float64)
    ids = CORPUS.held_out[: 3 * 13].view(3, 13)
    weight, states = 2 * cell.weight_recurrent.detach(), [torch.zeros(3, 10, dtype=torch.float64)]
    shift = cell.norm_input.bias + cell.norm_recurrent.bias
    for x in ids.T[:-1]:
        states.append((states[-1] @ weight.T + cell.weight_input.T[x] + shift).tanh().detach())
    wanted = torch.nn.functional.one_hot(ids[:, -1], CORPUS.vocabulary)
    gradient = ((readout(states[-1]).softmax(-1) - wanted) @ readout.weight).detach()
    sizes, gradients = norms("RNN", 2.0, 3, CORPUS, **SIZES)
    for distance in range(12):
        rms = float(gradient.square().sum(1).mean().sqrt())
        assert gradients[distance] == pytest.approx(rms, rel=1e-10)
        assert sizes[11 - distance] == pytest.approx(float(states[12 - distance].square().mean().sqrt()))
        gradient = (gradient * (1 - states[12 - distance] ** 2)) @ weight


@pytest.mark.parametrize("scale", [2.0, 8.0])
def test_the_layer_normalized_lstm_does_not_see_the_scale_of_its_recurrent_weight(scale):
    plain, scaled = (norms("LN-LSTM", s, 0, CORPUS, **SIZES) for s in (1e3, 1e3 * scale))
    np.testing.assert_allclose(plain, scaled, rtol=1e-4)
    plain, scaled = (norms("LSTM", s, 0, CORPUS, **SIZES) for s in (1.0, scale))
    assert max(abs(math.log(a / b)) for a, b in zip(plain[1], scaled[1], strict=True)) > 0.5


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200, 0.0])
def test_the_norm_has_no_overflow_or_underflow(size):
    assert root_mean_square(
        size * torch.tensor([[3.0, 4.0], [0.0, 5.0]], dtype=torch.float64)
    ) == pytest.approx(5 * size)


def test_slopes_leave_out_what_underflowed_and_are_none_without_points():
    gradients = [10.0**-k if k < 20 else 0.0 for k in range(40)]
    assert slope(gradients, 2) == pytest.approx(-100)
    assert math.isnan(slope([0.0] * 40, 2))


# --- theory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.01, 0.1])
def test_a_weak_rnn_is_linear(scale):
    assert rnn_rate(scale, 10**6) == pytest.approx(100 * math.log10(scale / 3**0.5), abs=0.1)


@pytest.mark.parametrize("scale", [1.0, 16.0])
def test_theory_of_the_rnn_is_an_average_over_draws(scale):
    generator = np.random.default_rng(0)
    draws, q = generator.standard_normal(400_000), 1.0
    for _ in range(200):
        summed = math.sqrt(scale**2 / 3 * q + 0.01) * draws
        q = float(np.mean(np.tanh(summed) ** 2))
    growth = scale**2 / 3 * float(np.mean(1 / np.cosh(np.clip(summed, -50, 50)) ** 4))
    assert rnn_rate(scale, 100) == pytest.approx(50 * math.log10(growth), abs=0.6)


def test_with_the_norm_a_small_gain_meets_the_edge_of_chaos_from_below():
    assert layer_norm_rnn_rate(1.0, 10**9, 1e-2) == pytest.approx(0, abs=0.01)
    assert layer_norm_rnn_rate(1.0, 10**9, 1.0) > 3


def test_a_wide_network_meets_theory():
    _, gradients = norms("LN-RNN", 1.0, 0, CORPUS, steps=200, cases=2, hidden=200, device="cpu")
    assert slope(gradients, 20) == pytest.approx(layer_norm_rnn_rate(1.0, 200, 1.0), abs=1)


# --- rows, text and figure ---------------------------------------------------------------------------------


def test_rows_hold_what_the_figure_needs(rows):
    assert {r["cell"] for r in rows["rates"]} == set(CELLS)
    assert {r["cell"] for r in rows["forward"]} == set(hidden_state_stability.DRAWN)
    assert max(r["step"] for r in rows["forward"]) == rows["runs"]["steps"]
    assert {r["theory"] is None for r in rows["rates"] if "LSTM" in r["cell"]} == {True}


def test_the_figure_is_drawn_from_its_rows_and_names_zeros(rows):
    for row in rows["backward"]:
        if row["cell"] == "RNN" and row["scale"] == 0.5 and row["distance"] > 40:
            row["gradient"] = 0.0
    zeros = sum(row["gradient"] == 0 for row in rows["backward"])
    figure = hidden_state_stability.draw(rows["forward"], rows["backward"], rows["rates"])
    words = [t.get_text().replace("\n", "") for ax in figure.axes for t in ax.texts]
    titles = [ax.get_title() for ax in figure.axes]
    plt.close(figure)
    assert zeros > 10
    assert f"{zeros} masked:{zeros} non-positive" in words
    assert sum("masked" in word for word in words) == 1
    assert any(title.endswith("$d$ = 69:\n0 to $10^{5}$") for title in titles)


def test_text_says_the_numbers_of_the_rows(written, rows):
    text = (written / "hidden_state_stability.md").read_text()
    low, high = hidden_state_stability.rate_range(rows["rates"], "LN-LSTM")
    assert f"{hidden_state_stability.signed(low)} to {hidden_state_stability.signed(high)} powers" in text
    assert not any(wrong in text for wrong in (" nan", "None", "+nan"))
    assert b"/Type3" not in (written / "hidden_state_stability.pdf").read_bytes()


def test_scales_without_a_slope_are_said(tmp_path, rows):
    for row in rows["rates"]:
        if (row["cell"], row["scale"], row["seed"]) == ("RNN", 0.5, 1):
            row["rate"] = None
    found = hidden_state_stability.Findings(**rows)
    assert hidden_state_stability.table(found).count("underflow") == 1
    assert len(hidden_state_stability.mean_rates(rows["rates"], "RNN")) == 2


def test_the_full_run_has_more_scales_and_seeds(tmp_path):
    short = hidden_state_stability.size_of(_run.Options(tmp_path))
    full = hidden_state_stability.size_of(_run.Options(tmp_path, full=True))
    assert set(short.scales) <= set(full.scales)
    assert full.seeds > short.seeds
    assert short.steps == full.steps == 700
    assert dataclasses.replace(short, steps=70).start == 5
