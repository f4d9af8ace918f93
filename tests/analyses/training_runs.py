"""What the tests of the analyses of training share."""

import json
from functools import cache
from pathlib import Path

from analyses import __main__ as main
from analyses import _run


def files_of(name, folder):
    """Run an analysis briefly through the command line; return its manifest."""
    assert main.main([name, "--quick", "--out", str(folder)]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {file.name for file in folder.iterdir()} == {*manifest, "manifest.json"}
    assert b"/Type3" not in (folder / f"{name}.pdf").read_bytes()
    text = (folder / f"{name}.md").read_text()
    assert not any(wrong in text for wrong in ("nan", "None", "inf "))
    return manifest


@cache
def findings(module):
    """The short run of an analysis, made once."""
    return module.compute(_run.Options(Path(), quick=True))
