"""Property tests of invariances, for pytest and Hypothesis: a new layer is tested in three lines.

    from normgeom.testing import parametrize_with_invariances

    @parametrize_with_invariances(MyNorm(), claims=["WeightMatrixRescale", "CaseRescale"])
    def test_invariances(check):
        check()

Needs pytest and hypothesis, which the rest of normgeom does not.
"""

try:
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401
except ModuleNotFoundError as missing:
    raise ImportError(
        "normgeom.testing needs the packages pytest and hypothesis, which the rest of normgeom does not; "
        f"{missing.name} is not installed. Install them: pip install hypothesis pytest"
    ) from missing

from normgeom.testing import strategies
from normgeom.testing.checks import InvarianceCheck, invariance_checks
from normgeom.testing.parametrize import parametrize_with_invariances

__all__ = ["InvarianceCheck", "invariance_checks", "parametrize_with_invariances", "strategies"]
