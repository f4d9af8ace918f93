import dataclasses
import json

import matplotlib.pyplot as plt
import pytest
import torch

from analyses import conservation
from tests.analyses.training_runs import files_of, findings

SGD, MOMENTUM, DECAY, BOTH, SINGLE, ADAM, PLAIN = conservation.CASES


@pytest.fixture(scope="module")
def summary():
    return {row["case"]: row for row in findings(conservation).summary}


def test_files_are_written_and_the_figure_is_drawn_from_them(tmp_path):
    files = files_of("conservation", tmp_path)
    assert set(files) == {f"conservation.{kind}" for kind in ("json", "md", "pdf", "png")}
    saved = json.loads((tmp_path / "conservation.json").read_text())
    figure = conservation.draw(saved["rows"], saved["summary"])
    assert len(figure.axes) == 2
    plt.close(figure)


@pytest.mark.parametrize("case", [SGD, MOMENTUM, DECAY, BOTH], ids=lambda case: case.name)
@pytest.mark.parametrize("block", ["W_h", "W_x"])
def test_the_law_holds_to_rounding(case, block, summary):
    assert summary[case.name][f"deviation of {block}"] < 1e-13


def test_rounding_is_that_of_the_type(summary):
    assert 1e-10 < summary[SINGLE.name]["deviation of W_h"] < 1e-5


@pytest.mark.parametrize("case", [ADAM, PLAIN], ids=lambda case: case.name)
def test_adam_and_no_norms_break_it(case, summary):
    assert summary[case.name]["deviation of W_h"] > 1e-2


def test_decay_leaves_the_power_of_theory():
    first = torch.ones(3, dtype=torch.float64)
    left = conservation.predicted(first, DECAY, 7)[7]
    assert left.tolist() == pytest.approx([(1 - 0.5 * 0.02) ** 7] * 3)


def test_a_wrong_decay_is_seen():
    true = conservation.predicted(torch.ones(3, dtype=torch.float64), DECAY, 20)
    wrong = conservation.predicted(true[0], dataclasses.replace(DECAY, decay=0.021), 20)
    assert conservation.compared(true, wrong)[-1]["deviation"] > 1e-3
    assert conservation.compared(true, true)[-1]["deviation"] == 0
