"""Single runs of an analysis outlive an interruption."""

import dataclasses
from pathlib import Path

import pytest

from analyses import (
    _run,
    _runs,
    angular_update,
    conservation,
    effective_lr_lstm,
    hidden_state_stability,
    placement_ablation,
    scale_lr_equivalence,
)


def write(options, runs, made, stop_at=None):
    def make(run):
        if run == stop_at:
            raise KeyboardInterrupt
        made.append(run)
        return {"square": run * run, "none": float("nan")}

    found = list(_runs.finished(options, "squares", runs, make))
    path = options.out / "squares.txt"
    path.write_text(str([each["square"] for each in found]))
    return [path]


def test_an_interrupted_analysis_goes_on_where_it_was(tmp_path, capsys):
    options, first, second = _run.Options(tmp_path), [], []
    with pytest.raises(KeyboardInterrupt):
        _run.run("squares", lambda own: write(own, range(5), first, stop_at=3), options)
    assert not (tmp_path / "squares.txt").exists()
    (path,) = _run.run("squares", lambda own: write(own, range(5), second), options)
    assert (first, second) == ([0, 1, 2], [3, 4])
    assert path.read_text() == "[0, 1, 4, 9, 16]"
    assert "squares: 3 of 5 runs are there from before" in capsys.readouterr().err
    assert {file.name for file in tmp_path.iterdir()} == {"squares.txt", "manifest.json"}


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"quick": True}, {"full": True}, {"runs": range(6)}, {"code": "other"}]
)
def test_runs_of_other_options_or_other_code_are_made_anew(tmp_path, monkeypatch, change):
    options, made = _run.Options(tmp_path), []
    with pytest.raises(KeyboardInterrupt):
        _run.run("squares", lambda own: write(own, range(5), [], stop_at=3), options)
    given = dict(change)
    runs, code = given.pop("runs", range(5)), given.pop("code", _runs._code())
    monkeypatch.setattr(_runs, "_code", lambda: code)
    _run.run("squares", lambda own: write(own, runs, made), dataclasses.replace(options, **given))
    assert made == list(runs)


def test_the_names_of_runs_are_the_same_in_every_process():
    options = _run.Options(Path())
    for named in (
        *(module.runs(options) for module in (angular_update, effective_lr_lstm)),
        *(module.CASES for module in (conservation, scale_lr_equivalence)),
        hidden_state_stability.CELLS,
        placement_ablation.PLACEMENTS,
    ):
        assert " at 0x" not in repr(list(named))
