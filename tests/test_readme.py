"""What the README shows as a Python session is what happens."""

import doctest
import re
import sys
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


def test_every_block_of_job_2_runs_alone(tmp_path, monkeypatch, capsys):
    """As a newcomer copies it: each block as a file of its own, beside `my_norm.py`."""
    text = README.read_text()
    job = text[text.index("### Test your own variant") : text.index("### The Fisher metric")]
    blocks = re.findall(r"```python\n(.*?)```", job, re.DOTALL)
    (tmp_path / "my_norm.py").write_text(blocks[0])
    monkeypatch.syspath_prepend(tmp_path)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "block"})
    assert len(blocks) == 4
    assert "symmetries of W (4, 3)" in capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "my_norm")
