"""What the README shows as a Python session is what happens."""

import doctest
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_sessions_of_the_readme():
    failed, tried = doctest.testfile(str(README), module_relative=False, report=True)
    assert (failed, tried > 10) == (0, True)
