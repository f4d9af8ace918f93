"""The figures of a tracked run draw what the rows say."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from normgeom.figures import draw_rate_against_norm, draw_tracking


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def run(block, power=-2.0):
    """A norm that grows, and an angle that falls with a power of it."""
    return [
        {"step": t, "block": block, "norm": 1.0 + t, "angular_update": 0.1 * (1.0 + t) ** power}
        for t in range(5)
    ]


def legend(ax):
    return ax.get_legend_handles_labels()[1]


def test_a_line_for_every_block_in_the_order_of_the_steps(ax):
    draw_tracking([*reversed(run("a")), *run("b")], ax)
    first, second = ax.lines
    assert legend(ax) == ["a", "b"]
    np.testing.assert_array_equal(first.get_ydata(), [1, 2, 3, 4, 5])
    assert (first.get_color(), first.get_linestyle()) != (second.get_color(), second.get_linestyle())
    assert first.get_linestyle() != second.get_linestyle()
    assert (ax.get_ylabel(), ax.get_yscale()) == ("‖w‖", "log")


def test_theory_bands_and_gaps(ax):
    rows = [{**row, "low": 0.9 * row["norm"], "high": 1.1 * row["norm"]} for row in run("a")]
    rows[2]["norm"] = None
    draw_tracking(rows, ax, theory=run("a"), log=False)
    measured, theory = ax.lines
    assert math.isnan(measured.get_ydata()[2])
    assert legend(ax) == ["a", "theory"]
    assert theory.get_color() == "black"
    assert len(ax.collections) == 1
    assert ax.get_yscale() == "linear"


def test_another_quantity(ax):
    draw_tracking(run("a"), ax, quantity="angular_update")
    assert ax.get_ylabel() == "angular update (rad)"
    assert ax.lines[0].get_ydata()[0] == pytest.approx(0.1)


def test_the_slope_of_theory_and_the_fitted_one(ax):
    draw_rate_against_norm([*run("a"), *run("b")], ax, power=-2)
    points, line, *_ = ax.lines
    assert legend(ax) == ["a: −2.00", "theory: slope −2", "b: −2.00"]
    np.testing.assert_allclose(line.get_ydata(), points.get_ydata()[[0, -1]])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_a_wrong_slope_is_seen(ax):
    draw_rate_against_norm(run("a", power=-1.5), ax, power=-2)
    points, line = ax.lines
    assert abs(line.get_ydata()[0] / points.get_ydata()[0] - 1) > 0.1


def test_undefined_and_constant_rows(ax):
    nothing = [{"block": "b", "norm": 0.0, "angular_update": float("nan")}]
    constant = [{"block": "a", "norm": 2.0, "angular_update": 0.1}] * 3
    draw_rate_against_norm([*constant, *nothing], ax)
    assert legend(ax) == ["a"]


@pytest.mark.parametrize("draw", [draw_tracking, draw_rate_against_norm])
def test_a_frame_without_axes_is_drawn_as_its_rows_are(ax, draw):
    rows = [*run("a"), *run("b")]
    drawn = draw(pd.DataFrame(rows))
    for mine, wanted in zip(drawn.lines, draw(rows, ax).lines, strict=True):
        np.testing.assert_array_equal(mine.get_xydata(), wanted.get_xydata())
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == legend(ax)
    plt.close(drawn.figure)
