import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from analyses import effective_lr_lstm
from analyses._language_model import Training
from tests.analyses.training_runs import files_of, findings


@pytest.fixture(scope="module")
def found():
    return findings(effective_lr_lstm)


def test_files_are_written_and_the_figure_is_drawn_from_them(tmp_path):
    files = files_of("effective_lr_lstm", tmp_path)
    assert set(files) == {f"effective_lr_lstm.{kind}" for kind in ("csv", "json", "md", "pdf", "png")}
    saved = json.loads((tmp_path / "effective_lr_lstm.json").read_text())
    rows = pd.read_csv(tmp_path / "effective_lr_lstm.csv").to_dict("records")
    figure = effective_lr_lstm.draw(rows, saved["rescaled"], saved["summary"])
    assert len(figure.axes) == 15
    plt.close(figure)


def test_the_weights_grow_and_the_rate_falls(found):
    sgd, adam, _ = found.summary
    assert sgd["rate at W₀/4"] < sgd["rate at W₀"] < sgd["rate at 4W₀"] < 1
    assert adam["rate at W₀/4"] < 1


def test_the_length_grows_as_the_gradient_says_with_layer_norm_alone(found):
    sgd, _, plain = found.summary
    for block in ("W_h", "W_x"):
        assert sgd[f"growth of {block}"] == pytest.approx([1] * 6, abs=0.03)  # rounding, at 4 W₀
        assert max(abs(np.array(plain[f"growth of {block}"]) - 1)) > 0.05


def test_a_step_from_rescaled_weights_has_the_slope_of_theory_with_layer_norm_alone(found):
    sgd, adam, plain = found.summary
    assert sgd["slope of rescaled"] == pytest.approx(-2, abs=0.01)
    assert adam["slope of rescaled"] == pytest.approx(-1, abs=0.01)
    assert abs(plain["slope of rescaled"] + 2) > 0.3


def test_the_rate_is_that_of_the_optimizer_s_definition(found):
    rows = [r for r in found.rows if r["optimizer"] == "SGD" and r["step"] == 1]
    for row in rows:
        assert row["effective_learning_rate"] == pytest.approx(1 / row["norm"] ** 2, rel=1e-5)


def test_the_angle_is_the_predicted_one_with_sgd(found):
    least, _, most = found.summary[0]["angle over predicted"]
    assert (least, most) == pytest.approx((1, 1), abs=1e-3)


def test_a_wrong_learning_rate_is_seen():
    own = Training(hidden=8, steps=8).run()[0].query("block == 'W_h'")
    assert effective_lr_lstm.growth(own) == pytest.approx(1, abs=1e-3)
    assert effective_lr_lstm.growth(own.assign(learning_rate=2.0)) == pytest.approx(0.25, abs=1e-3)
