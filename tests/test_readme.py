"""What the README shows as a Python session is what happens."""

import doctest
import re
import warnings
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
SECTION = re.compile(r"### Look at your own model\n.*?(?=\n## )", re.DOTALL)


def failed(text, *, flags=0):
    """Run the sessions of a text one after another; return how many examples failed, and their number."""
    test = doctest.DocTestParser().get_doctest(text, {}, "README", str(README), 0)
    return doctest.DocTestRunner(optionflags=flags).run(test)


def test_the_sessions_of_the_readme():
    failures, tried = failed(SECTION.sub("", README.read_text()))
    assert (failures, tried > 10) == (0, True)


@pytest.mark.filterwarnings("ignore")
def test_the_session_with_a_model_of_transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(
            "transformers", reason="the README's GPT-2 is built by transformers, not installed"
        )
    failures, tried = failed(SECTION.search(README.read_text()).group(), flags=FLAGS)
    assert (failures, tried) == (0, 17)
