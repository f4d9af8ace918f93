"""Null spaces of slopes are read as sparse whole numbers, and only confirmed ones are kept."""

import numpy as np
import pytest

from normgeom.symmetry.exponents import Taste, integer_basis, null_exponents


def slopes_with(vectors, rows=30, seed=0, noise=0.0):
    """Random slopes that these vectors, and no others, annihilate."""
    draws, vectors = np.random.default_rng(seed), np.asarray(vectors, dtype=float)
    free = draws.normal(size=(rows, vectors.shape[1]))
    basis = np.linalg.qr(vectors.T)[0]
    return free - free @ basis @ basis.T + noise * draws.normal(size=free.shape)


def same_span(found, wanted):
    rank = np.linalg.matrix_rank(np.vstack([found, wanted]))
    return rank == len(found) == len(wanted)


@pytest.mark.parametrize(
    "vectors",
    [
        [(1, -1, 0, 0)],
        [(1, 1, -1, 0, 0), (0, 0, 1, 1, -1)],
        [(2, -1, 0, 0), (0, 0, 3, -2)],
        [(1, 1, 1, 1, 1, 1, 1, 1), (1, -1, 0, 0, 0, 0, 0, 0), (0, 0, 1, 1, -1, 0, 0, 0)],
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_span_is_found_whatever_the_scales(vectors, seed):
    scales = np.exp(np.random.default_rng(seed).uniform(-12, 12, len(vectors[0])))
    found = null_exponents(slopes_with(vectors, seed=seed), lambda k: True)
    assert same_span(found.vectors, vectors)
    rescaled = null_exponents(slopes_with(np.asarray(vectors) / scales, seed=seed) / scales, lambda k: True)
    assert same_span(rescaled.vectors, vectors)
    assert found.unread == 0
    assert found.smallest_kept > 1e6 * found.largest_null


def test_the_sparsest_basis_is_chosen():
    hidden = [(1, 1, 1, 1, 1, 1), (1, -1, 0, 0, 0, 0), (0, 0, 1, -1, 0, 0)]
    mixed = np.random.default_rng(1).normal(size=(3, 3)) @ np.asarray(hidden, dtype=float)
    found = integer_basis(np.linalg.qr(mixed.T)[0], Taste(((1, 1),) * 6))
    assert {tuple(map(abs, v)) for v in found} >= {(1, 1, 0, 0, 0, 0), (0, 0, 1, 1, 0, 0)}
    assert all(max(map(abs, v)) == 1 for v in found) or min(sum(map(abs, v)) for v in found) == 2


def test_vectors_of_ones_are_preferred():
    hidden = [(1, -2, 0, -1), (0, 1, -1, 0)]
    found = null_exponents(slopes_with(hidden), lambda k: True)
    assert set(found.vectors) == {(0, 1, -1, 0), (-1, 1, 1, 1)}


def test_a_small_slope_is_not_none():
    small = slopes_with([(1, -1, 0)])
    small[:, 0] += 1e-9 * np.random.default_rng(2).normal(size=len(small))
    assert null_exponents(small, lambda k: False).vectors == ()
    assert null_exponents(small, lambda k: False).unread == 1
    both = slopes_with([(1, -1, 0, 0), (0, 0, 1, -1)])
    both[:, 3] += 1e-9 * np.random.default_rng(2).normal(size=len(both))
    found = null_exponents(both, lambda k: k == (1, -1, 0, 0))
    assert (found.vectors, found.unread) == (((1, -1, 0, 0),), 0)


def test_irrational_exponents_are_counted_and_not_read():
    found = null_exponents(slopes_with([(1, -(2**0.5), 0)]), lambda k: True)
    assert (found.vectors, found.unread) == ((), 1)


def test_no_slopes_and_no_null_space():
    assert null_exponents(np.zeros((3, 0)), lambda k: True).vectors == ()
    assert null_exponents(np.random.default_rng(0).normal(size=(9, 4)), lambda k: True).vectors == ()


def test_gains_have_positive_exponents():
    found = null_exponents(slopes_with([(1, 1, 1, -1)]), lambda k: True, widths=[(4, 4)] * 3 + [(4, 0)])
    assert found.vectors == ((-1, -1, -1, 1),)
