import json

import pytest

from analyses import __main__ as main
from analyses import _run, fine_print, table1, table1_digits
from normgeom.report import write_text


@pytest.mark.parametrize("module", [table1, table1_digits, fine_print], ids=lambda m: m.__name__)
def test_every_analysis_writes_its_files_and_the_manifest(module, tmp_path):
    name = module.__name__.removeprefix("analyses.")
    assert main.main([name, "--quick", "--out", str(tmp_path)]) == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    written = {p.name for p in tmp_path.iterdir()} - {"manifest.json"}
    assert {f"{name}.{kind}" for kind in ("json", "md", "tex", "pdf", "png")} <= written == set(manifest)
    assert all(ord(c) < 128 for c in (tmp_path / f"{name}.tex").read_text()), "LaTeX would need more packages"
    assert not any(b"/Type3" in pdf.read_bytes() for pdf in tmp_path.glob("*.pdf"))
    entry = manifest[f"{name}.md"]
    assert entry["script"] == f"analyses/{name}.py"
    assert {"arguments", "seed", "versions", "device", "commit", "date", "seconds"} <= set(entry)


def test_table_1_of_the_report_is_the_paper_s(tmp_path):
    cells = {(r["layer"], r["title"]): r["holds"] for r in table1.compute(_run.Options(tmp_path)).records()}
    assert sum(cells[k] for k in cells if k[0] in ("batch norm", "weight norm", "layer norm")) == 10


def test_the_law_of_eps_is_met(tmp_path):
    rows = fine_print.curves(_run.Options(tmp_path, quick=True))
    assert len(rows) == 4 * 5 * 9
    assert max(abs(r["measured"] - r["law"]) for r in rows) < 1e-14


def test_a_failure_is_named_and_the_others_run(tmp_path, monkeypatch, capsys):
    def broken(options):
        write_text(options.out / "half.txt", "done")
        raise RuntimeError("no such luck")

    monkeypatch.setattr(table1, "write", broken)
    monkeypatch.setattr(table1_digits, "write", lambda options: [options.out / "other.txt"])
    assert main.main(["table1", "table1_digits", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr()
    assert "no such luck" in out.out
    assert "failed: table1" in out.err
    assert set(json.loads((tmp_path / "manifest.json").read_text())) == {"other.txt"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table7"], "no analysis table7; there are table1"),
        (["--device", "abacus"], "--device abacus cannot be used"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main.main(arguments)
    assert message in capsys.readouterr().err
