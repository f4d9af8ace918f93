"""The pytest face."""

from collections.abc import Iterable
from typing import Any

import pytest

from normgeom.testing.checks import invariance_checks


def parametrize_with_invariances(layer: Any, claims: Iterable[Any] = (), **options: Any) -> Any:
    """Return a pytest decorator: one item for each check of a layer, passed as the argument `check`.

    Args:
        layer: a norm, a module, or a function of (weight, data); see `as_layer`.
        claims: the actions that leave it unchanged, exactly or up to its eps, as classes or their names.
        options: those of `invariance_checks`: sizes, dtype, bit_exact, degenerate, examples.

    Raises:
        ValueError, TypeError: when the test file is read, for claims or layers that are none.

    >>> import normgeom as ng
    >>> @parametrize_with_invariances(ng.RMSNorm(), claims=["WeightMatrixRescale"])
    ... def test_rms_norm(check):
    ...     check()
    >>> test_rms_norm.pytestmark[0].args[1][0].id
    'RMSNorm-WeightMatrixRescale-invariant'
    """
    checks = invariance_checks(layer, claims, **options)
    return pytest.mark.parametrize("check", [pytest.param(check, id=check.id) for check in checks])
