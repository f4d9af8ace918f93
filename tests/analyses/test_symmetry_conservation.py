import json

import matplotlib.pyplot as plt
import pytest

from analyses import symmetry_conservation
from tests.analyses.training_runs import files_of, findings

PLAIN, DECAY, EPS, ADAM, LSTM = symmetry_conservation.CASES


def of(case, *laws):
    return [s for s in findings(symmetry_conservation).summary if s["case"] == case.name and s["law"] in laws]


def test_files_are_written_and_the_figure_is_drawn_from_them(tmp_path):
    files = files_of("symmetry_conservation", tmp_path)
    assert set(files) == {f"symmetry_conservation.{kind}" for kind in ("json", "md", "pdf", "png")}
    saved = json.loads((tmp_path / "symmetry_conservation.json").read_text())
    figure = symmetry_conservation.draw(saved["rows"])
    assert len(figure.axes) == 2
    plt.close(figure)


@pytest.mark.parametrize("case", [PLAIN, DECAY], ids=lambda case: case.name)
def test_sgd_moves_every_quantity_as_predicted(case):
    own = of(case, *symmetry_conservation.LAWS)
    assert len(own) == 25
    assert all(s["holds"] is True and s["error"] < 1e-9 for s in own)


def test_eps_breaks_norms_and_not_sums():
    assert 1e-8 < max(s["error"] for s in of(EPS, "joint norms")) < 1
    assert all(s["holds"] is True for s in of(EPS, "column sums", "row sums", "joint sums", "dead block"))
    assert {s["holds"] for s in of(LSTM, "column sums", "joint sums")} == {True}


def test_adam_has_no_such_law():
    own = of(ADAM, "joint norms", "column sums")
    assert {s["holds"] for s in own} == {None}
    assert min(s["error"] for s in own) > 1e-4


def test_a_wrong_prediction_is_seen():
    row = {"predicted": 1.0, "measured": 1.001, "scale": 0.5}
    assert symmetry_conservation.deviation(row) == pytest.approx(1e-3, rel=1e-2)
    assert symmetry_conservation.deviation({**row, "measured": 1.0}) == 0
