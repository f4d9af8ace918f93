import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from analyses import angular_update as analysis
from analyses._language_model import Lion, Training
from normgeom.dynamics import AdamRule, LionRule, SGDRule
from tests.analyses.training_runs import files_of, findings


@pytest.fixture(scope="module")
def summary():
    return {(row["optimizer"], row["decay"]): row for row in findings(analysis).summary}


def test_files_are_written_and_the_figure_is_drawn_from_them(tmp_path):
    files = files_of("angular_update", tmp_path)
    assert set(files) == {f"angular_update.{kind}" for kind in ("json", "md", "pdf", "png")}
    saved = json.loads((tmp_path / "angular_update.json").read_text())
    figure = analysis.draw(saved["rows"], saved["summary"])
    assert len(figure.axes) == 4
    plt.close(figure)


def test_every_optimizer_is_there_with_and_without_decay(summary):
    assert len(summary) == 9
    assert ("Adam + L2", "without") not in summary  # it is AdamW's


@pytest.mark.parametrize(("name", "angle"), [("SGD", math.sqrt(2 * 0.005)), ("SGDM", math.sqrt(0.001 / 1.9))])
def test_the_predicted_angle_of_sgd_is_that_of_rate_and_decay_alone(name, angle, summary):
    assert summary[name, "with weight decay"]["predicted angle"] == pytest.approx(angle)


def test_without_decay_the_norm_grows_as_predicted_by_the_measured_gradient(summary):
    assert summary["SGD", "without"]["norm ratios"] == pytest.approx([1, 1], abs=0.25)


@pytest.mark.parametrize(
    "rule", [SGDRule(0.1, 0.9), AdamRule(0.01), LionRule(0.001)], ids=lambda r: type(r).__name__
)
def test_the_angle_is_the_step_s_length_over_the_norm(rule):
    one, half = analysis.single_angle(rule, np.array([1.0, 2.0]), 100, 4.0)
    assert one / half == pytest.approx(4 if isinstance(rule, SGDRule) else 2)


def test_lion_moves_every_coordinate_by_the_rate():
    w = torch.nn.Parameter(torch.ones(3))
    w.grad = torch.tensor([2.0, -1e-3, 0.0])
    Lion([w], lr=0.1, weight_decay=0.5).step()
    assert w.tolist() == pytest.approx([0.85, 1.05, 0.95])


def test_a_run_twice_as_long_as_theory_is_seen_as_2():
    run = Training(optimizer="AdamW", rate=0.003, decay=2.0, hidden=8, steps=5)
    own = run.run()[0].query("block == 'W_h'")
    said = analysis.settled(run, own.assign(norm=2 * analysis.settled(run, own)["predicted norm"]))
    assert said["measured norm"] / said["predicted norm"] == pytest.approx(2)
