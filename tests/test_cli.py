import json

import numpy as np
import pytest


def test_table1_prints_the_table(normgeom):
    code, out, _ = normgeom("table1")
    assert code == 0
    assert out.count("✓ Invariant") == 10
    assert out.count("✗ No") == 8


def test_table1_formats(normgeom):
    assert normgeom("table1", "--format", "md")[1].count("\n") == 5
    assert r"\toprule" in normgeom("table1", "--format", "latex")[1]
    cells = json.loads(normgeom("table1", "--format", "json", "--norms", "rms,none")[1])
    assert [c["holds"] for c in cells[:6]] == [True, False, False, True, False, True]


def test_table1_proofs(normgeom):
    out = normgeom("table1", "--norms", "layer", "--proofs")[1]
    assert out.count("so z' = z") == 4
    assert out.count("before: a - mu") == 2


def test_table1_eps_and_dtype(normgeom):
    code, out, _ = normgeom("table1", "--eps", "1e-5", "--dtype", "float32", "--norms", "batch")
    assert code == 0
    assert out.count("≈ Up to eps") == 3


def test_table1_at_an_npz(normgeom, tmp_path):
    generator = np.random.default_rng(0)
    path = tmp_path / "point.npz"
    np.savez(path, weight=generator.normal(size=(4, 3)), data=generator.normal(size=(5, 3)))
    code, out, _ = normgeom("table1", "--data", str(path))
    assert (code, out.count("✓ Invariant")) == (0, 10)
    assert "point.npz" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--norms", "group"), "--norms must be among batch, weight, layer"),
        (("--dtype", "int8"), "--dtype must be one of float64, float32"),
        (("--data", "digits", "--engines", "exact"), "--data is measured by the numeric engine alone"),
        (("--proofs", "--format", "json"), "--proofs goes with --format text or md"),
        (("--data", "[bold]x.npz"), "no file [bold]x.npz"),
        (("--device", "abacus"), "--device must be one this torch can use; got 'abacus'"),
        (("--data", "nowhere.npz"), "no file nowhere.npz"),
        (("--engines", "magic"), "engines must be among numeric, exact, symbolic"),
        (("--eps", "-1"), "eps must be a finite number >= 0; got -1"),
        (("--format", "word"), "'word' is not one of"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(normgeom, arguments, message):
    code, out, err = normgeom("table1", *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.replace("│", " ").split())
