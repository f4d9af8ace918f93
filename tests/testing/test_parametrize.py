"""The pytest face, run as a user would."""

import re
import subprocess
import sys

import pytest

import normgeom as ng
from normgeom.testing import parametrize_with_invariances

FILE = """
import normgeom as ng
from normgeom.testing import parametrize_with_invariances

@parametrize_with_invariances(ng.RMSNorm(), claims=["WeightMatrixRescale", "CaseRescale"], examples=2)
def test_rms(check):
    check()
"""


def test_items_have_names_and_fail_where_a_claim_is_missing(tmp_path):
    (tmp_path / "test_mine.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "PASSED test_mine.py::test_rms[RMSNorm-WeightMatrixRescale-invariant]" in done.stdout
    assert "PASSED test_mine.py::test_rms[RMSNorm-DatasetRecenter-broken]" in done.stdout
    assert "FAILED test_mine.py::test_rms[RMSNorm-DatasetRescale-broken]" in done.stdout
    assert "Add 'DatasetRescale' to claims" in done.stdout
    assert "1 failed, 5 passed" in done.stdout


@parametrize_with_invariances(
    ng.WeightNorm(), claims=["WeightMatrixRescale", ng.WeightVectorRescale], examples=3
)
def test_the_decorator_in_a_suite_that_runs_in_parallel(check):
    check()


@pytest.mark.parametrize("missing", ["hypothesis", "pytest"])
def test_without_its_packages_the_import_says_what_to_install(missing):
    code = f"import sys; sys.modules[{missing!r}] = None; import normgeom.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = f"ImportError: normgeom.testing needs the packages pytest and hypothesis, .*{missing} is not"
    assert re.search(said + r" installed\. Install them: pip install hypothesis pytest", done.stderr)
