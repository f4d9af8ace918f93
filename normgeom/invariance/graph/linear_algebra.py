"""Decompositions of matrices of 50 digits, by mpmath."""

from collections.abc import Callable
from typing import Any

import numpy as np

from normgeom.invariance.graph.digits import NoValue, objects


def _matrix(a: Any, x: np.ndarray) -> Any:
    """An array as a matrix of mpmath.

    Raises:
        NotImplementedError: for symbols, and for more than one matrix.
    """
    if x.ndim != 2 or not hasattr(a, "context"):
        raise NotImplementedError("only one matrix of numbers is decomposed")
    return a.context.matrix([[a.context.mpf(str(value)) for value in row] for row in x])


def _array(a: Any, matrix: Any) -> np.ndarray:
    """A matrix or vector of mpmath as an array."""
    rows = [[a.decimal(matrix[i, j]) for j in range(matrix.cols)] for i in range(matrix.rows)]
    return objects(np.array(rows, dtype=object))


def _regular(function: Callable[[Any], Any], matrix: Any) -> Any:
    """Apply a function of regular matrices, and raise NoValue for a singular one."""
    try:
        return function(matrix)
    except (ValueError, ZeroDivisionError) as why:
        raise NoValue("a singular matrix") from why


def symmetric(a: Any, x: np.ndarray, *_: Any, **__: Any) -> tuple[Any, Any]:
    """`_linalg_eigh`: eigenvalues in rising order, and eigenvectors."""
    values, vectors = a.context.eigsy(_matrix(a, x))
    return _array(a, values).ravel(), _array(a, vectors)


def singular(a: Any, x: np.ndarray, full: bool = False, vectors: bool = True, **_: Any) -> tuple[Any, ...]:
    """`_linalg_svd`: the singular values in falling order, with their vectors in the thin form."""
    if full and vectors and x.shape[0] != x.shape[1]:
        raise NotImplementedError("the full decomposition")
    left, values, right = a.context.svd_r(_matrix(a, x))
    return _array(a, left), _array(a, values).ravel(), _array(a, right)


def inverse(a: Any, x: np.ndarray, **_: Any) -> tuple[Any, Any]:
    """`linalg_inv_ex`: the inverse, and a code that says whether there is one."""
    return _array(a, _regular(a.context.inverse, _matrix(a, x))), objects(a.number(0))


def solved(a: Any, x: np.ndarray, y: np.ndarray, *, left: bool = True, **_: Any) -> tuple[Any, ...]:
    """`_linalg_solve_ex`: the solution of `x s = y`, or with `left=False` of `s x = y`."""
    inverted, code = inverse(a, x)
    return (inverted @ y if left else y @ inverted), x, code, code


def solved_by_parts(
    a: Any, x: np.ndarray, y: np.ndarray, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> np.ndarray:
    """`linalg_solve_triangular`: the same with one half of x, whatever stands in the other."""
    half = np.where(np.tri(len(x), dtype=bool).T if upper else np.tri(len(x), dtype=bool), x, a.number(0))
    if unitriangular:
        half[np.diag_indices(len(x))] = a.number(1)
    return solved(a, half, y, left=left)[0]


def triangular(a: Any, x: np.ndarray, **_: Any) -> tuple[Any, Any]:
    """`linalg_cholesky_ex`: the lower factor, and a code that says whether there is one."""
    return _array(a, _regular(a.context.cholesky, _matrix(a, x))), objects(a.number(0))
