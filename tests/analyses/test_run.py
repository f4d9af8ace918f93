import json
import signal
import subprocess
import sys

import pytest

from analyses import __main__ as main
from analyses import _run, fine_print, table1, table1_digits
from normgeom.report import write_text
from tests.oracles import TABLE_1


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
    table = table1.compute(_run.Options(tmp_path))
    rows = {type(norm).__name__: table[name].holds for name, norm in table1.LAYERS.items()}
    assert rows == TABLE_1


def test_the_law_of_eps_is_met(tmp_path):
    rows = fine_print.curves(_run.Options(tmp_path, quick=True))
    assert len(rows) == 4 * 5 * 9
    assert max(abs(r["measured"] - r["law"]) for r in rows) < 1e-14


def test_a_failure_is_named_and_the_others_run(tmp_path, monkeypatch, capsys):
    def broken(options):
        write_text(options.out / "half.txt", "done")
        raise RuntimeError("no such luck")

    def written(options):
        write_text(options.out / "other.txt", "done")
        return [options.out / "other.txt"]

    monkeypatch.setattr(table1, "write", broken)
    monkeypatch.setattr(table1_digits, "write", written)
    assert main.main(["table1", "table1_digits", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr()
    assert "no such luck" in out.out
    assert "failed: table1" in out.err
    assert set(json.loads((tmp_path / "manifest.json").read_text())) == {"other.txt"}
    assert {p.name for p in tmp_path.iterdir()} == {"other.txt", "manifest.json"}


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_leaves_what_was_there(tmp_path, stop):
    write_text(tmp_path / "table1.json", "old")
    code = (
        "import analyses.table1 as t, analyses.__main__ as m, time, pathlib\n"
        "def write(options):\n"
        "    (options.out / 'table1.json').write_text('new')\n"
        "    print('half', flush=True); time.sleep(60)\n"
        f"t.write = write; raise SystemExit(m.main(['table1', '--out', {str(tmp_path)!r}]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while "half" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(stop)
    process.communicate(timeout=60)
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[stop]
    assert [p.name for p in tmp_path.iterdir()] == ["table1.json"]
    assert (tmp_path / "table1.json").read_text() == "old\n"


def test_a_broken_manifest_is_found_before_any_work(tmp_path, capsys):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(SystemExit, match="2"):
        main.main(["table1", "--out", str(tmp_path)])
    assert "manifest.json must be JSON" in capsys.readouterr().err


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
