"""Initial gains: those asked for are set, and text and figure say what the rows say."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

from analyses import __main__ as main
from analyses import gain_init
from normgeom.models import LNGRU, LNLSTM


def rows_of(bits, cell="LN-LSTM", task="text"):
    """Rows of three seeds whose last bits are given, with a little of the seed added to those that differ."""
    return [
        {"task": task, "cell": cell, "small": small, "seed": seed, "step": step,
         "bits": 5.0 if step < 9 else value + 0.01 * seed * (small != "none")}
        for small, value in bits.items() for seed in range(3) for step in (0, 5, 9)
    ]  # fmt: skip


BITS = {"none": 2.0, "all": 2.4, "input": 2.3, "recurrent": 2.1, "cell": 2.0}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("gains")
    assert main.main(["gain_init", "--quick", "--out", str(out)]) == 0
    return out


def test_every_choice_of_gains_is_trained(written):
    found = json.loads((written / "gain_init.json").read_text())
    keys = {(r["task"], r["cell"], r["small"], r["seed"]) for r in found["points"]}
    assert len(keys) == 2 * (5 + 4) * found["runs"]["seeds"]
    assert len(found["costs"]) == 2 * (4 + 3) * found["runs"]["seeds"]


def test_gains_start_where_they_are_set(written):
    found = json.loads((written / "gain_init.json").read_text())
    ends = {(r["cell"], r["small"]): r["gains"] for r in found["points"] if "gains" in r}
    assert ends["LN-LSTM", "input"]["input"] < 0.2 < 0.9 < ends["LN-LSTM", "input"]["cell"]
    assert max(ends["LN-GRU", "all"].values()) < 0.2


@pytest.mark.parametrize(("layer", "places"), [(LNLSTM, ("input", "recurrent", "cell")), (LNGRU, ("input",))])
def test_set_gains(layer, places):
    core = layer(3, 4)
    gain_init.set_gains(core, dict.fromkeys(places, 0.1))
    for name, value in core.named_parameters():
        if name.endswith("gain"):
            expected = 0.1 if name.split("norm_")[1].split(".")[0] in places else 1.0
            np.testing.assert_allclose(value.detach().numpy(), expected)
    assert gain_init.gains(core, places) == pytest.approx(dict.fromkeys(places, 0.1))


def test_costs_are_over_the_same_seed():
    costs = gain_init.costs_of(rows_of(BITS))
    mean, error = gain_init.cost(costs, "text", "LN-LSTM", "all")
    assert mean == pytest.approx(0.41)
    assert error == pytest.approx(0.01 / 3**0.5)
    assert "none" not in {row["small"] for row in costs}


@pytest.mark.parametrize(
    ("last", "words", "beside"),
    [
        (2.4, "1.0 beats 0.1 by 0.41 ± 0.006 bits", "; as in the paper's attentive reader"),
        (1.5, "0.1 beats 1.0 by 0.49 ± 0.006 bits", "; **unlike** in the paper's attentive reader"),
        (1.99, "1.0 and 0.1 alike (+0.00 ± 0.006 bits)", "; **unlike** in the paper's attentive reader"),
        (float("nan"), "a run diverged", ""),
    ],
)
def test_the_finding_follows_the_numbers(last, words, beside):
    assert gain_init.beside_the_paper(words) == beside
    costs = gain_init.costs_of(rows_of(BITS | {"all": last}))
    assert gain_init.finding(costs, "text", "LN-LSTM") == words


def test_text_and_figure_are_those_of_the_rows(written):
    rows = json.loads((written / "gain_init.json").read_text())
    text = (written / "gain_init.md").read_text()
    figure = gain_init.draw(rows["points"], rows["costs"])
    titles = " ".join(ax.get_title().replace("\n", " ") for ax in figure.axes)
    plt.close(figure)
    for task in ("text", "digits"):
        for cell in gain_init.CELLS:
            assert (finding := gain_init.finding(rows["costs"], task, cell)) in text
            assert finding in titles
    assert b"/Type3" not in (written / "gain_init.pdf").read_bytes()
    assert "nan" not in text


def test_a_diverged_seed_breaks_its_line():
    rows = rows_of(BITS)
    rows[-1]["bits"] = None
    figure = gain_init.draw(rows, gain_init.costs_of(rows))
    ends = [float(line.get_ydata()[-1]) for line in figure.axes[0].lines if len(line.get_ydata()) > 1]
    plt.close(figure)
    assert sum(np.isnan(ends)) == 1
