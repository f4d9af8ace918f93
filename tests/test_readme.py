"""What the README shows as a Python session is what happens."""

import doctest
import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_sessions_of_the_readme():
    failed, tried = doctest.testfile(str(README), module_relative=False, report=True)
    assert (failed, tried > 10) == (0, True)


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
