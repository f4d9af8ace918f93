"""The matrix of blocks against symmetries can be drawn from its rows alone."""

import json

import matplotlib.pyplot as plt
import pytest

import normgeom as ng
from normgeom.figures.draw_symmetry_map import draw_symmetry_map
from tests.golden.scan_models import reference


@pytest.fixture
def found():
    yield ng.scan(*reference("group norm"))
    plt.close("all")


def test_every_block_and_symmetry_has_its_label_and_every_exponent_its_cell(found):
    ax = found.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == [one.block for one in found.blocks]
    names = [t.get_text() for t in ax.get_xticklabels()]
    assert names[:3] == ["scale", "shift along units", "shift along inputs"]
    assert names[3:] == ["1 one norm", "2 residual stream with its readers", "3 gain/next weight pair"]
    cells = [t.get_text() for t in ax.texts]
    assert cells.count("−1") == sum(list(one.exponents.values()).count(-1) for one in found.joint)
    assert len(cells) == len([row for row in found.rows() if row["power"]])


def test_the_figure_can_be_redrawn_from_saved_rows(found):
    rows = json.loads(json.dumps(found.rows()))
    _, ax = plt.subplots()
    assert draw_symmetry_map(rows, ax) is ax
    assert [t.get_text() for t in ax.texts] == [t.get_text() for t in found.plot().texts]


def test_it_is_drawn_on_axes_that_are_given(found):
    _, ax = plt.subplots()
    assert found.plot(ax) is ax
