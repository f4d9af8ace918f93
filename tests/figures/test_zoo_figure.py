import itertools

import matplotlib.colors
import matplotlib.pyplot as plt
import numpy as np
import pytest

from normgeom.figures import draw_zoo, style, zoo_key
from normgeom.figures.draw_zoo import LOOK, clustering, distance, power

TITLES = ("weight matrix re-scaling", "dataset re-centering")


def layer(name, *cells, **more):
    kinds = {"✓": "invariant", "≈": "invariant up to eps", "✗": "not invariant"}
    drawn = [
        {"title": t, "kind": kinds.get(c, "not invariant"), "degree": None if c in kinds else c}
        for t, c in zip(TITLES, cells, strict=True)
    ]
    empty = {"joint": [], "gradient_only": [], "gradient_broken": []}
    return {"layer": name, "mode": "train", "cells": drawn} | empty | more


ROWS = [
    layer("one", "✓", "✗"),
    layer("far", "✗", "✓", joint=["a"], mode="eval"),
    layer("two", "≈", "✗", gradient_only=["b"]),
    layer("scales", 2.0, "✗"),
]


@pytest.fixture
def axes():
    figure, both = plt.subplots(1, 2)
    yield both
    plt.close(figure)


def test_layers_of_like_patterns_are_neighbours(axes):
    draw_zoo(ROWS, *axes)
    names = [t.get_text() for t in axes[0].get_yticklabels()]
    assert abs(names.index("one") - names.index("two")) == 1
    assert "far (eval)" in names


def test_the_marks_say_what_the_rows_say(axes):
    words = [t.get_text() for t in draw_zoo(ROWS, *axes).texts]
    assert [words.count(mark) for mark in ("✓", "≈", "✗", r"$\delta^{2}$", "⇄", "∇")] == [2, 1, 4, 1, 1, 1]


def test_distances_by_hand():
    one, far, two, scales = ROWS
    assert (distance(one, one), distance(one, two), distance(one, far)) == (0, 0.25, 2)
    assert (distance(one, scales), distance(far, scales)) == (1, 1.5)
    assert clustering(ROWS)[0, 2] == 0.25


def test_a_line_is_drawn_between_patterns_only(axes):
    draw_zoo([*ROWS, layer("one again", "✓", "✗")], axes[0])
    assert len(axes[0].lines) == 3


def test_powers():
    assert [power(k) for k in (1, 2, -0.5)] == [r"$\delta$", r"$\delta^{2}$", r"$\delta^{-1/2}$"]


def test_fills_are_told_apart_in_grey():
    def grey(kind):
        return float(np.dot(matplotlib.colors.to_rgb(LOOK[kind][0]), (0.299, 0.587, 0.114)))

    shades = [grey(kind) for kind in ("invariant", "invariant up to eps", "power", "not invariant")]
    assert (np.diff(shades) > 0.08).all()


def test_headings_do_not_overlap():
    with style(height=3.0, xtick__labelsize=5.0):
        figure, ax = plt.subplots()
        draw_zoo(ROWS, ax)
        figure.canvas.draw()
        boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes))
    assert len(zoo_key()) == 6
    plt.close(figure)
