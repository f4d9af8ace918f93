import matplotlib.pyplot as plt
import pytest

import normgeom as ng
from normgeom.figures import draw_eps_law, draw_invariances, save_figure, style

ROWS = ng.invariance_table(
    {"layer norm": ng.LayerNorm(), "no norm": ng.NoNorm()}, engines=["numeric"]
).records()
CURVE = [
    {"eps": e, "delta": d, "measured": e / d, "law": e / d}
    for e in (0.0, 1e-8, 1e-3)
    for d in (0.1, 1.0, 10.0)
]


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_the_picture_says_what_the_table_says(ax):
    words = [t.get_text() for t in draw_invariances(ROWS, ax).texts]
    assert words.count("✓ Invariant") == 4
    assert words.count("✗ No") == 8
    assert [t.get_text() for t in ax.get_yticklabels()] == ["layer norm", "no norm"]


def test_cells_without_a_verdict_are_a_dash(ax):
    draw_invariances(ROWS[:1], ax, titles=[ROWS[0]["title"], "something else"])
    assert "–" in [t.get_text() for t in ax.texts]


def test_the_law_is_drawn_for_each_eps_but_0(ax):
    draw_eps_law(CURVE, ax)
    solid = [line for line in ax.lines if line.get_linestyle() == "-"]
    assert len(solid) == 2
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_no_global_style_is_left(ax):
    before = dict(plt.rcParams)
    with style(height=2.0):
        assert plt.rcParams["pdf.fonttype"] == 42
    assert dict(plt.rcParams) == before


def test_files_hold_no_type_3_fonts(tmp_path):
    with style(height=2.0):
        figure, ax = plt.subplots()
        draw_invariances(ROWS, ax)
    files = save_figure(figure, tmp_path / "picture")
    assert [f.name for f in files] == ["picture.pdf", "picture.png"]
    assert b"/Type3" not in files[0].read_bytes()
    assert b"/FontFile2" in files[0].read_bytes()
    assert not plt.fignum_exists(figure.number)
