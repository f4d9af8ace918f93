import io
import math
import sys
import types

import pytest
import torch
from rich.console import Console

from normgeom.training import StepRecord, read_log, train, with_progress_bar
from tests.training.oracles import small


def run(folder, steps=4, **options):
    model, task = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return list(train(model, task, optimizer, steps=steps, folder=folder, evaluate_every=2, **options))


def test_the_log_is_the_records_to_the_last_bit(tmp_path):
    records = run(tmp_path)
    frame = read_log(tmp_path)
    assert list(frame.columns) == [
        "step", "bits", "gradient_norm", "learning_rate", "held_out_bits", "held_out_accuracy"
    ]  # fmt: skip
    assert frame.step.tolist() == [1, 2, 3, 4]
    for name in frame.columns[1:4]:
        assert frame[name].tolist() == [getattr(record, name) for record in records]
    assert frame.held_out_bits.dropna().tolist() == [records[1].held_out_bits, records[3].held_out_bits]
    assert math.isnan(frame.held_out_accuracy[0])


def test_a_row_is_on_the_disk_as_soon_as_its_step_is_over(tmp_path):
    model, task = small()
    for record in train(model, task, torch.optim.SGD(model.parameters(), lr=0.1), steps=3, folder=tmp_path):
        assert read_log(tmp_path).step.iloc[-1] == record.step


def test_half_a_row_is_not_read(tmp_path):
    run(tmp_path)
    with (tmp_path / "log.csv").open("a") as file:
        file.write("5,1.2")
    assert read_log(tmp_path).step.tolist() == [1, 2, 3, 4]


def test_no_log(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run in .*: there is no .*log.csv"):
        read_log(tmp_path)


@pytest.mark.parametrize(("option", "package"), [("parquet", "pyarrow"), ("tensorboard", "tensorboard")])
def test_a_missing_package_is_named_before_anything_is_written(option, package, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"{option} needs the package {package}.*'normgeom\[{option}\]'"):
        run(tmp_path / "run", **{option: True})
    assert not (tmp_path / "run").exists()


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd

    run(tmp_path, parquet=True)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "log.parquet"), read_log(tmp_path))


def test_tensorboard_gets_every_number_and_goes_on_after_a_break(tmp_path, monkeypatch):
    made = []

    class Writer:
        def __init__(self, folder, purge_step):
            self.folder, self.purge_step, self.scalars, self.closed = folder, purge_step, [], False
            made.append(self)

        def add_scalar(self, *scalar):
            self.scalars.append(scalar)

        def close(self):
            self.closed = True

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr("normgeom.training.folder.require", lambda *_, **__: None)
    monkeypatch.setattr("normgeom.training.log.require", lambda *_, **__: None)
    records = run(tmp_path, steps=2, tensorboard=True)
    run(tmp_path, tensorboard=True, resume=True)
    assert [(w.folder, w.purge_step, w.closed) for w in made] == [
        (str(tmp_path / "tensorboard"), 1, True),
        (str(tmp_path / "tensorboard"), 3, True),
    ]
    assert ("bits", records[0].bits, 1) in made[0].scalars
    assert [s for s in made[0].scalars if s[0] == "held_out_bits"] == [
        ("held_out_bits", records[1].held_out_bits, 2)
    ]
    assert {step for _, _, step in made[1].scalars} == {3, 4}


def test_real_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    records = run(tmp_path, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("bits")
    assert [e.step for e in events] == [1, 2, 3, 4]
    assert events[2].value == pytest.approx(records[2].bits)


RECORDS = [StepRecord(k, 5.0 / k, 1.0, 0.1, *((2.0, 0.5) if k == 2 else ())) for k in (1, 2, 3)]


def test_the_bar_shows_steps_rate_time_left_and_bits():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    assert list(with_progress_bar(RECORDS, steps=3, console=console)) == RECORDS
    for fact in ("3/3", "1.667 bits, held out 2.000", "0:00:00"):
        assert fact in out.getvalue()


def test_there_is_no_bar_where_there_is_no_terminal():
    out = io.StringIO()
    assert list(with_progress_bar(RECORDS, steps=3, console=Console(file=out))) == RECORDS
    assert out.getvalue() == ""
