"""The cost of a scan grows by at most four passes with each block, and the line that says so is right."""

import itertools

import pytest

from analyses.bench_scan import MAKERS, Row, line, measure


@pytest.mark.parametrize("name", MAKERS)
def test_four_passes_a_block_at_most(name):
    rows = [measure(name, depth, *MAKERS[name](depth)) for depth in (2, 4, 6)]
    for before, after in itertools.pairwise(rows):
        assert after.passes - before.passes <= 4 * (after.blocks - before.blocks)
    assert all(row.passes <= 4 * row.blocks + 20 for row in rows)


def test_a_line_through_points_on_a_line():
    rows = [Row("", 1, blocks, 0, 3 * blocks + 1, 2, 0.0, 1.0) for blocks in (1, 2, 5)]
    assert line(rows, lambda row: row.passes) == pytest.approx((3, 5, 1))
