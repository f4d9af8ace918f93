"""The drawing functions of training draw what the rows say."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from normgeom.figures import draw_against_norm, draw_band, draw_power, name_ends

ROWS = [
    {"seed": seed, "scale": scale, "step": step, "norm": scale * step, "rate": rate / step}
    for scale in (1.0, 4.0)
    for seed, rate in ((0, 1.0), (1, 4.0))
    for step in (1.0, 10.0)
]


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_the_line_is_the_geometric_mean_and_the_band_all_seeds(ax):
    draw_band(ROWS[:4], ax, x="step", y="rate")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2.0, 0.2])
    corners = ax.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose((corners[:, 1].min(), corners[:, 1].max()), (0.1, 4.0))


def test_every_scale_has_a_colour_of_its_own(ax):
    draw_against_norm(ROWS, ax, y="rate")
    assert len({line.get_color() for line in ax.lines}) == 2
    assert [line.get_xdata().max() for line in ax.lines] == [10.0, 40.0]


def test_theory_passes_through_its_point_with_its_slope(ax):
    ax.set(xscale="log", yscale="log")
    draw_power(ax, through=(2.0, 8.0), exponent=-2.0, ends=(1.0, 4.0), label="−2")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [32.0, 2.0])
    assert [text.get_text() for text in ax.texts] == ["−2"]


def test_names_keep_their_order_and_do_not_overlap(ax):
    ax.set(xscale="log", yscale="log", xlim=(1, 100), ylim=(1e-3, 1))
    heights = [0.5, 0.5, 0.9, 1e-3]
    name_ends(ax, 100.0, heights, ["a", "b", "c", "d"], ["k"] * 4)
    places = np.log([text.xy[1] for text in ax.texts]) / np.log(1e3)
    assert np.diff(np.sort(places)).min() > 0.07
    assert places[2] == places.max()
    assert ax.spines["bottom"].get_bounds()[1] == 100
