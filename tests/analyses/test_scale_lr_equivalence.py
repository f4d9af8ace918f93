import json

import matplotlib.pyplot as plt
import pytest

from analyses import scale_lr_equivalence as analysis
from tests.analyses.training_runs import files_of, findings


@pytest.fixture(scope="module")
def summary():
    return {row["case"]: row for row in findings(analysis).summary}


def test_files_are_written_and_the_figure_is_drawn_from_them(tmp_path):
    files = files_of("scale_lr_equivalence", tmp_path)
    assert set(files) == {f"scale_lr_equivalence.{kind}" for kind in ("json", "md", "pdf", "png")}
    saved = json.loads((tmp_path / "scale_lr_equivalence.json").read_text())
    figure = analysis.draw(saved["rows"], saved["summary"])
    assert len(figure.axes) == 3
    plt.close(figure)


def test_the_law_s_own_power_of_delta_gives_the_same_run(summary):
    assert summary["SGD, η → δ²η"]["largest"] < 1e-6
    assert summary["Adam, η → δη"]["largest"] < 1e-7


def test_a_power_of_two_gives_the_same_bits(summary):
    assert summary["SGD, η → δ²η, δ = 4"]["largest"] == 0


def test_eps_breaks_it_by_a_little(summary):
    large, small = (summary[f"SGD, η → δ²η, eps = {eps}"]["first"] for eps in ("1e-5", "1e-9"))
    assert 1e-10 < small < 1e-3 * large < 1e-3


@pytest.mark.parametrize(
    "case", [case for case in analysis.CASES if not case.same], ids=lambda case: case.name
)
def test_other_powers_and_no_norms_give_another_run(case, summary):
    assert summary[case.name]["largest"] > 1e-2


def test_the_library_s_check_agrees():
    holds = {(c["cell"], c["optimizer"]): c["holds"] for c in findings(analysis).checks}
    assert holds == {("LN-LSTM", "SGD"): True, ("LN-LSTM", "Adam"): True, ("LSTM", "SGD"): False}
