"""The ablation of the LSTM's norms: effects are those of the rows, and the figure and the text say them."""

import itertools
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from analyses import __main__ as main
from analyses import _recurrent, _run, placement_ablation
from analyses.placement_ablation import PLACES
from normgeom.models import LNLSTM, Placement

TERMS = {
    "input": -0.4, "recurrent": 0.2, "cell": 0.0, "input × recurrent": 0.1, "input × cell": 0.0,
    "recurrent × cell": 0.0, "input × recurrent × cell": -0.05,
}  # fmt: skip


def rows_of(terms, noise=0.01, seeds=3, task="text"):
    """Rows whose bits are a sum of known effects; the noise of a seed is the same for all placements."""
    rows = []
    for seed, on in itertools.product(range(seeds), itertools.product((False, True), repeat=3)):
        bits = 3.0 + noise * seed
        for term, effect in terms.items():
            effect = effect + (noise * (seed - 1) if "×" not in term else 0)
            bits += effect / 2 * np.prod([1 if on[PLACES.index(p)] else -1 for p in term.split(" × ")])
        what = {"task": task, "seed": seed, **dict(zip(PLACES, on, strict=True))}
        rows += [what | {"step": 0, "bits": 6.0}, what | {"step": 10, "bits": bits}]
    return rows


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("placement")
    assert main.main(["placement_ablation", "--quick", "--out", str(out)]) == 0
    return out


def test_all_eight_placements_are_trained_on_both_tasks_with_every_seed(written):
    found = json.loads((written / "placement_ablation.json").read_text())
    keys = {(r["task"], r["seed"], *(r[p] for p in PLACES)) for r in found["points"]}
    assert len(keys) == 2 * found["runs"]["seeds"] * 8
    assert {r["step"] for r in found["points"]} == {0, 4, 8}


def test_text_and_figure_are_those_of_the_rows(written):
    rows = json.loads((written / "placement_ablation.json").read_text())
    text = (written / "placement_ablation.md").read_text()
    figure = placement_ablation.draw(rows["points"], rows["effects"])
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    plt.close(figure)
    for task in ("text", "digits"):
        finding = placement_ablation.finding(rows["effects"], task)
        assert finding in text
        assert any(finding in title for title in titles)
    assert b"/Type3" not in (written / "placement_ablation.pdf").read_bytes()
    assert "nan" not in text


def test_effects_are_recovered_from_their_sum():
    found = placement_ablation.summary(placement_ablation.effects_of(rows_of(TERMS)))
    assert {row["term"]: row["mean"] for row in found} == pytest.approx(TERMS)
    errors = {row["term"]: row["error"] for row in found}
    assert errors["input"] == pytest.approx(0.01 / 3**0.5)
    assert errors["input × cell"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (TERMS, "the norm at the input helps most: −0.40 ± 0.006 bits"),
        (TERMS | {"recurrent": 0.9}, "the norm at the recurrent hurts most: +0.90"),
        (TERMS | {"recurrent": 0.395}, "the norm at the input helps, among others"),
        (dict.fromkeys(TERMS, 0.002), "no norm's effect exceeds 2 standard errors"),
    ],
)
def test_the_finding_follows_the_numbers(terms, words):
    assert words in placement_ablation.finding(placement_ablation.effects_of(rows_of(terms)), "text")


def test_a_diverged_run_leaves_no_effect_and_is_said():
    rows = rows_of(TERMS)
    rows[-1]["bits"] = None
    effects = placement_ablation.effects_of(rows)
    assert placement_ablation.finding(effects, "text") == "a run diverged: no effects"
    plt.close(placement_ablation.draw(rows, effects))


# --- what the runs share -----------------------------------------------------------------------------------


@pytest.fixture
def options(tmp_path):
    return _run.Options(tmp_path, quick=True)


@pytest.mark.parametrize("task", ["text", "digits"])
def test_models_of_one_seed_start_from_the_same_weights(task, options):
    size = _recurrent.size_of(options)
    made = _recurrent.task_of(task, 0, size, options)
    first, second = (
        _recurrent.model_of(made, lambda inputs, p=place: LNLSTM(inputs, 8, placement=p), 1)
        for place in (Placement(), Placement.none())
    )
    other = _recurrent.model_of(made, lambda inputs: LNLSTM(inputs, 8), 2)
    for name in ("core.layer0.weight_input", "core.layer0.weight_recurrent", "readout.weight"):
        weight = first.get_parameter(name)
        assert torch.equal(weight, second.get_parameter(name))
        assert not torch.equal(weight, other.get_parameter(name))


def test_a_run_that_meets_nan_ends_in_nan(options):
    size = _recurrent.size_of(options)
    task = _recurrent.task_of("digits", 0, size, options)
    model = _recurrent.model_of(task, lambda inputs: LNLSTM(inputs, 8), 0)
    calls = iter(range(100))
    model.register_forward_hook(lambda _, __, out: out * float("nan") if next(calls) > 7 else out)
    bits = [row["bits"] for row in _recurrent.curve(model, task, 8, size, options)]
    assert np.isfinite(bits[:2]).all()
    assert np.isnan(bits[2])


def test_training_lowers_the_bits(options):
    size = _recurrent.size_of(options)
    task = _recurrent.task_of("digits", 0, size, options)
    model = _recurrent.model_of(task, lambda inputs: LNLSTM(inputs, 16), 0)
    bits = [row["bits"] for row in _recurrent.curve(model, task, 40, size, options)]
    assert bits[-1] < bits[0] - 0.5


def test_quick_and_full_exclude_each_other(capsys):
    with pytest.raises(SystemExit, match="2"):
        main.main(["placement_ablation", "--quick", "--full"])
    assert "not allowed with argument --quick" in capsys.readouterr().err
