import json
import shutil
import subprocess

import pytest
import torch

import normgeom as ng


@pytest.fixture(scope="module")
def table():
    return ng.invariance_table({"batch": ng.BatchNorm(), "weight": ng.WeightNorm(), "layer": ng.LayerNorm()})


def test_repr_is_the_table(table):
    text = repr(table)
    assert all(name in text for name in ("batch", "weight", "layer", "✓ Invariant", "✗ No", "∝δ"))
    assert repr(table["layer"]).count("✓ Invariant") == 4


def test_cells_are_verdicts(table):
    assert table["batch", "CaseRescale"] is table["batch"][5]
    assert table["batch", ng.CaseRescale] is table["batch", "single training case re-scaling"]
    assert [v.holds for v in table[1]] == [True, False, True, False, False, False]


def test_markdown_has_a_line_a_layer(table):
    lines = table.to_markdown().splitlines()
    assert len(lines) == 5
    assert {line.count("|") for line in lines} == {8}


def test_frame(table):
    assert table.to_frame("holds").to_numpy().sum() == 10
    assert list(table.to_frame().columns) == [a.title for a in ng.TABLE_1]


def test_json_keeps_the_evidence(table):
    cells = json.loads(table.to_json())
    assert len(cells) == 18
    assert all(c["proof"] if c["holds"] else c["witness"] for c in cells)


def test_latex_compiles(table, tmp_path):
    source = table.to_latex()
    assert all(rule in source for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex on this machine")
    page = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + source + r"\end{document}"
    (tmp_path / "t.tex").write_text(page)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_proofs_are_printed_for_every_cell(table):
    text = table.proofs()
    assert text.count("so z' = z") == 10
    assert text.count("before: a - mu") == 8


def test_unknown_names(table):
    with pytest.raises(KeyError, match="no layer 'group'; there are batch, weight, layer"):
        table["group"]
    with pytest.raises(KeyError, match="no transform 'Rotate'"):
        table["batch"]["Rotate"]
    with pytest.raises(ValueError, match="at least one layer"):
        ng.invariance_table([])


def test_layers_of_one_name_are_numbered():
    table = ng.invariance_table(
        [ng.as_layer(ng.RMSNorm, eps=1e-3), ng.NoNorm(), ng.RMSNorm()], [ng.CaseRescale], engines=["exact"]
    )
    assert [row.layer for row in table] == ["RMSNorm 1", "NoNorm", "RMSNorm 2"]
    assert [table[name, "CaseRescale"].exactly for name in ("RMSNorm 1", "RMSNorm 2")] == [False, True]


def test_progress_names_each_row():
    seen = []
    ng.invariance_table([ng.RMSNorm(), ng.NoNorm()], engines=["exact"], progress=seen.append)
    assert seen == ["RMSNorm", "NoNorm"]


def test_assert_invariant_gives_the_evidence():
    assert ng.assert_invariant(ng.LayerNorm(), ng.WeightMatrixRecenter).exactly
    with pytest.raises(AssertionError, match=r"(?s)not invariant.*weight = .*before: a - mu"):
        ng.assert_invariant(ng.RMSNorm(), ng.WeightMatrixRecenter)


def test_invariance_error(point):
    scale = ng.WeightMatrixRescale(2.0)
    assert ng.invariance_error(ng.LayerNorm(), scale, *point) == 0.0
    assert ng.invariance_error(ng.NoNorm(), scale, *point) == pytest.approx(1.0)
    with pytest.raises(TypeError, match="needs one element"):
        ng.invariance_error(ng.LayerNorm(), ng.WeightMatrixRescale, *point)
    with pytest.raises(ValueError, match="weight must be finite"):
        ng.invariance_error(ng.LayerNorm(), scale, point[0] * torch.inf, point[1])
