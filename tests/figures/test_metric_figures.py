"""The drawing functions of the metric draw what the rows say."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from normgeom.figures import (
    draw_curvature,
    draw_eq13_gap,
    draw_fisher_blocks,
    draw_gain_error,
    draw_gain_metric,
    draw_kl,
    draw_null_curvature,
    draw_spectrum,
)


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def words(ax):
    return [text.get_text() for text in ax.texts]


def test_blocks_are_labelled_and_negative_entries_marked(ax):
    labels = [("w", 1), ("w", 1), ("b", 1), ("w", 2), ("w", 2), ("b", 2)]
    values = np.eye(6)
    values[0, 1] = values[1, 0] = -0.5
    values[4, 5] = -1e-9
    rows = [{"letter": a, "unit": u, "values": v} for (a, u), v in zip(labels, values.tolist(), strict=True)]
    draw_fisher_blocks(rows, ax)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["$w_1$", "$b_1$", "$w_2$", "$b_2$"]
    assert ax.get_xticks().tolist() == [0.5, 2, 3.5, 5]
    assert words(ax) == ["−", "−"]


def test_blocks_share_a_scale_if_told(ax):
    draw_fisher_blocks([{"letter": "w", "unit": 1, "values": [0.1]}], ax, limit=2.0)
    assert ax.images[0].get_clim() == (-2.0, 2.0)


@pytest.mark.parametrize(("theory", "look"), [(-2, "-"), (None, ":")])
def test_lines_of_theory_pass_through_the_point_at_delta_1(ax, theory, look):
    rows = [
        {"block": "ww", "delta": d, "length": 3 * d, "size": 5 / d**2, "theory": theory, "fitted": theory}
        for d in (0.5, 1.0, 2.0)
    ]
    points, line = draw_curvature(rows, ax).lines
    assert line.get_linestyle() == look
    np.testing.assert_allclose(line.get_ydata(), points.get_ydata())
    assert words(ax) == ["fitted slopes\nww: " + ("no power law" if theory is None else "−2.000")]


def test_blocks_with_one_slope_share_a_line_of_text(ax):
    rows = [
        {"block": b, "delta": d, "length": d, "size": 1.0, "theory": 0, "fitted": -1e-17}
        for b in ("bb", "gg")
        for d in (1.0, 2.0)
    ]
    assert words(draw_curvature(rows, ax)) == ["fitted slopes\nbb, gg: 0.000"]


def test_methods_are_drawn_over_the_scale_of_the_data(ax):
    rows = [{"method": m, "delta": d, "ratio": d**2} for m in ("a", "b") for d in (0.5, 1.0, 2.0)]
    draw_gain_metric(rows, ax)
    assert ax.get_legend_handles_labels()[1] == ["a", "b"]
    ax.figure.canvas.draw()
    assert "1/2" in [t.get_text() for t in ax.get_xticklabels()]


def test_errors_of_zero_are_drawn_at_the_floor(ax):
    rows = [
        {"method": "batch norm", "equation": 32, "family": f, "error": e} for f, e in (("x", 0), ("y", 0.5))
    ]
    draw_gain_error(rows, ax)
    assert [float(line.get_ydata()[0]) for line in ax.lines] == [1e-17, 0.5]
    assert ax.get_xticklabels()[0].get_text() == "eq. 32\nbatch\nnorm"


GAP = [
    {"norm": n, "units": h, "error": 0.1, "one case": 0.2, "law": 0.3, "law name": "law",
     "direction": "W", "printed": 0.9, "exact": -1e-30}
    for n in ("layer norm", "RMSNorm") for h in (3, 8)
]  # fmt: skip


def test_the_gap_has_a_law_and_two_measurements_a_norm(ax):
    draw_eq13_gap(GAP, ax)
    assert [float(line.get_ydata()[0]) for line in ax.lines] == [0.3, 0.2, 0.1] * 2


def test_null_curvature_is_drawn_by_magnitude_down_to_the_floor(ax):
    draw_null_curvature(GAP, ax)
    assert [float(line.get_ydata()[0]) for line in ax.lines] == [0.9, 1e-18] * 2


def test_rounding_is_drawn_without_a_line(ax):
    rows = [
        {"norm": n, "size": s, "quadratic": s**2, "difference": 0.1 * s**3, "order": o}
        for n, o in (("a", 3.0), ("b", None))
        for s in (0.1, 1.0)
    ]
    draw_kl(rows, ax)
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-", "None"]
    assert words(ax) == ["b: rounding"]


def test_the_null_dimension_is_marked(ax):
    rows = [{"norm": "a", "eigenvalue": e, "rank": 2, "accuracy": 0.5} for e in (2.0, 1.0, -1e-17)]
    spectrum, mark = draw_spectrum(rows, ax).lines
    assert spectrum.get_ydata().tolist() == [1e-17, 1.0, 2.0]
    assert list(mark.get_xdata()) == [1.5, 1.5]
    assert words(ax) == ["1 null"]
