import json

import pytest

import normgeom as ng
from normgeom.report import atomic, to_latex, to_markdown, to_text, write_json, write_text


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "rows.json"
    write_text(target, "old")

    def interrupted():
        with atomic(target) as file:
            file.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["rows.json"]


def test_folders_are_made(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "x")
    assert (tmp_path / "a" / "b.txt").read_text() == "x\n"


def test_numbers_that_are_not_finite_become_null(tmp_path):
    write_json(tmp_path / "x.json", {"a": [float("nan"), float("inf"), 1.5], 2: None})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [None, None, 1.5], "2": None}


def test_markdown_escapes_bars():
    assert to_markdown(["a", "b"], [["x", "|y|"]]).splitlines()[-1] == r"| x | \|y\| |"


@pytest.mark.parametrize(("plain", "tex"), [("a_b", r"a\_b"), ("5 %", r"5 \%"), ("∝δ", r"$\propto$$\delta$")])
def test_latex_escapes(plain, tex):
    assert tex in to_latex(["a", "b"], [["x", plain]])


def test_text_keeps_marks_without_colour():
    text = to_text(["", "weight matrix re-scaling"], [["layer norm", "✓ Invariant"]])
    assert "✓ Invariant" in text
    assert "\x1b" not in text


def test_a_narrow_table_cuts_no_name():
    verdicts = [
        "✓ Invariant",
        "≈ Up to eps 4e-05",
        "✗ No, ∝δ",
        "? Undecided",
        "✓ Invariant",
        "✗ No, sign flips",
    ]
    header = ["", *(action.title for action in ng.TABLE_1)]
    for name in ("Sequential", "MedianNorm", "MedianAbsoluteDeviationNorm"):
        text = to_text(header, [[name, *verdicts]], width=80)
        assert "".join(line[1:].split(" ")[0] for line in text.split("─\n")[1].splitlines()) == name
        assert text.split().count("sign") == text.split().count("flips") == 1
        assert "…" not in text
