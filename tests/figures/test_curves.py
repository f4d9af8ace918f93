"""Curves over seeds, and values that a log axis cannot show."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from normgeom.figures import (
    draw_on_log,
    draw_seed_band,
    draw_seeds,
    label_ends,
    mask_for_log,
    plain_log_ticks,
    save_figure,
    seed_band,
    spread,
    style,
)

NAN = float("nan")
DIVERGED = [
    {"seed": seed, "step": step, "loss": loss}
    for seed, losses in enumerate(([4, 3, 2, 1], [4, 3, 2, 1], [4, 6, NAN, NAN]))
    for step, loss in enumerate(losses)
]


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def words(ax):
    return [text.get_text() for text in ax.texts]


# --- seeds -------------------------------------------------------------------------------------------------


def test_a_seed_that_diverges_does_not_improve_the_mean():
    """FIG-05: the means are those of all three seeds or none, and what is left is counted."""
    band = seed_band(DIVERGED, x="step", y="loss")
    np.testing.assert_array_equal(band.centre, [4, 4, NAN, NAN])
    assert band.count.tolist() == [3, 3, 2, 2]
    assert band.lost == {2: (1.0, 6.0)}


@pytest.mark.parametrize("bad", [NAN, None, float("inf")])
def test_what_is_not_finite_counts_as_lost_and_so_does_a_missing_row(bad):
    marked = [row | {"loss": bad} if row["loss"] != row["loss"] else row for row in DIVERGED]
    missing = [row for row in DIVERGED if row["loss"] == row["loss"]]
    for rows in (marked, missing):
        np.testing.assert_array_equal(seed_band(rows, x="step", y="loss").centre, [4, 4, NAN, NAN])


def test_band_is_the_range_over_seeds():
    rows = [{"seed": s, "step": 0, "loss": v} for s, v in enumerate((1.0, 10.0, 100.0))]
    band = seed_band(rows, x="step", y="loss", geometric=True)
    assert [float(part[0]) for part in (band.low, band.centre, band.high)] == pytest.approx([1, 10, 100])
    assert float(seed_band(rows, x="step", y="loss").centre[0]) == 37


def test_the_line_breaks_and_a_cross_marks_the_lost_seed(ax):
    assert draw_seed_band(seed_band(DIVERGED, x="step", y="loss"), ax, colour="k") == 0
    line, cross = ax.lines
    np.testing.assert_array_equal(line.get_ydata(), [4, 4, NAN, NAN])
    assert cross.get_marker() == "x"
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (1.0, 6.0)


def test_a_gap_is_not_bridged(ax):
    """FIG-05."""
    rows = [{"seed": 0, "step": k, "loss": v} for k, v in enumerate((1.0, 2.0, NAN, 4.0, 5.0))]
    draw_seed_band(seed_band(rows, x="step", y="loss"), ax, colour="k")
    assert np.isnan(ax.lines[0].get_ydata()).tolist() == [False, False, True, False, False]
    assert len(ax.lines) == 1, "the seed goes on, so that no cross is due"


def test_a_zero_on_a_log_axis_is_counted_and_left_open(ax):
    rows = [{"seed": s, "step": k, "loss": v} for s in (0, 1) for k, v in enumerate((1.0, s, 1.0))]
    ax.set_yscale("log")
    assert draw_seed_band(seed_band(rows, x="step", y="loss", geometric=True), ax, colour="k") == 1
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1, NAN, 1])


@pytest.mark.parametrize("across", [True, False])
def test_the_bar_is_two_standard_errors_to_either_side(across, ax):
    draw_seeds([1.0, 2.0, 3.0], 7, ax, colour="k", across=across)
    dots, mean, *_ = ax.lines
    assert sorted(dots.get_xdata() if across else dots.get_ydata()) == [1, 2, 3]
    assert (mean.get_xdata() if across else mean.get_ydata()) == [2]
    ends = ax.collections[0].get_segments()[0][:, 0 if across else 1]
    assert ends.tolist() == pytest.approx([2 - 2 / 3**0.5, 2 + 2 / 3**0.5])


def test_a_seed_without_a_value_leaves_no_mean(ax):
    draw_seeds([1.0, None], 0.0, ax, colour="k", across=True)
    assert np.isnan(float(ax.lines[1].get_xdata()[0]))


# --- log axes ----------------------------------------------------------------------------------------------


def test_zeros_negatives_and_nan_are_masked_and_named(ax):
    """FIG-04: 2 of 5 points can be drawn."""
    found = draw_on_log(list(range(5)), [1e-3, 0.0, -1e-4, NAN, 1e-5], ax)
    assert (found.nonpositive, found.nan, found.infinite) == (2, 1, 0)
    assert words(ax) == ["3 masked: 2 non-positive, 1 NaN"]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1e-3, NAN, NAN, NAN, 1e-5])
    assert ax.get_ylim()[0] > 1e-7, "masked values must not stretch the axis"


def test_nothing_is_said_where_nothing_is_masked(ax):
    draw_on_log([0, 1], [1.0, 2.0], ax)
    assert words(ax) == []


def test_infinities_of_either_sign_are_told_apart():
    shown, found = mask_for_log([float("inf"), -float("inf"), None])
    assert np.isnan(shown).all()
    assert (found.infinite, found.nonpositive, found.nan) == (1, 1, 1)


@pytest.mark.parametrize("limits", [(0.45, 4.2), (2.5, 4.4), (1e-5, 1e3)])
def test_ticks_of_a_log_axis_are_plain_and_few(limits, ax):
    ax.set_yscale("log")
    ax.set_ylim(*limits)
    plain_log_ticks(ax)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert 2 <= len(labels) <= 9
    assert [float(label) for label in labels] == pytest.approx(ax.get_yticks().tolist())
    assert ax.get_ylim() == limits


# --- labels ------------------------------------------------------------------------------------------------


def test_labels_keep_their_order_and_distance():
    values = [0.5, 0.1, 0.11, 0.12, 0.9]
    places = spread(values, 0.1)
    assert np.argsort(places).tolist() == np.argsort(values).tolist()
    assert np.diff(np.sort(places)).min() > 0.1 - 1e-12
    assert spread([], 0.1).tolist() == []


def test_labels_stand_at_their_values_and_none_for_a_lost_line(ax):
    ax.plot([0, 1, 2], [0, 5, 10])
    ax.set_ylim(0, 10)
    label_ends([("a", 5.0, "k"), ("b", NAN, "k")], ax, gap=0.1, heading="names")
    assert words(ax) == ["a", "names"]
    assert ax.texts[0].xyann == (1.07, 0.5)


# --- fonts -------------------------------------------------------------------------------------------------


def formula(path, **overrides):
    with style(height=2.0, **overrides):
        figure, ax = plt.subplots()
        ax.plot([-1, 1], [1e-3, 1])
        ax.set_yscale("log")
        ax.set_xlabel(r"$\eta_{\mathrm{eff}}$ step")
    return figure, path


def test_formulas_and_minus_signs_come_without_type_3_fonts(tmp_path):
    """FIG-01."""
    figure, path = formula(tmp_path / "formula")
    pdf = save_figure(figure, path)[0].read_bytes()
    assert b"/Type3" not in pdf
    assert b"/FontFile2" in pdf


def test_the_font_check_sees_matplotlib_s_default(tmp_path):
    figure, path = formula(tmp_path / "default.pdf")
    with plt.rc_context({"pdf.fonttype": 3}):
        figure.savefig(path)
    plt.close(figure)
    assert b"/Type3" in path.read_bytes()
