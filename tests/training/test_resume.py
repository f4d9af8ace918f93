import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from normgeom.models import LNLSTM, CharLM, Placement, RowDigits
from normgeom.training import SequentialDigits, checkpoints, load_checkpoint, read_log, train
from tests.training.oracles import small

OPTIMIZERS = {
    "sgdm": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


def made(kind):
    """A model, its task, an optimizer and a schedule, the same at every call."""
    optimizer, _, what = kind.partition(" ")
    model, task = small(core=LNLSTM, length=30)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        if what == "dropout":
            model = CharLM(nn.LSTM(task.classes, 6, 2, dropout=0.5), task.classes)
        if what == "digits":
            model, task = RowDigits(nn.GRU(8, 6)), SequentialDigits(batch_size=200)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    return (
        model,
        task,
        stepper,
        torch.optim.lr_scheduler.OneCycleLR(
            stepper, 0.5, total_steps=60, cycle_momentum=optimizer != "rprop"
        ),
    )


def run(kind, folder, *, steps=11, until=None, **options):
    """Train in a folder, break off after a step, and return the parameters."""
    model, task, optimizer, scheduler = made(kind)
    options = {"checkpoint_every": 4, "evaluate_every": 3, "clip": 0.5, "scheduler": scheduler, **options}
    for record in train(model, task, optimizer, steps=steps, folder=folder, **options):
        if record.step == until:
            break
    return [p.detach().clone() for p in model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("until", [1, 4, 6, 10])
@pytest.mark.parametrize("kind", ["sgdm", "adam", "adamw", "rprop", "sgdm dropout", "adam digits"])
def test_a_run_broken_off_and_resumed_is_the_run(kind, until, tmp_path):
    whole = run(kind, tmp_path / "whole")
    run(kind, tmp_path / "parts", until=until)
    assert len(read_log(tmp_path / "parts")) == until
    assert same(run(kind, tmp_path / "parts", resume=True), whole)
    logs = [(tmp_path / name / "log.csv").read_bytes() for name in ("whole", "parts")]
    assert logs[0] == logs[1]
    assert logs[0].count(b"\n") == 12


@pytest.mark.parametrize("part", ["model", "optimizer", "scheduler", "generator", "state", "step"])
def test_every_part_of_a_checkpoint_is_needed(part, tmp_path):
    kind = "adam dropout"
    whole = run(kind, tmp_path / "whole")
    run(kind, tmp_path / "parts", until=5)
    first, last = checkpoints(tmp_path / "parts")
    content, other = load_checkpoint(last), load_checkpoint(first)
    torch.save({**content, part: other[part]}, last)
    assert not same(run(kind, tmp_path / "parts", resume=True), whole)


def test_a_longer_run_goes_on_from_a_finished_one(tmp_path):
    whole = run("adam", tmp_path / "whole", steps=13)
    run("adam", tmp_path / "parts", steps=7)
    assert same(run("adam", tmp_path / "parts", steps=13, resume=True), whole)
    assert same(run("adam", tmp_path / "parts", steps=13, resume=True), whole), "nothing is left to do"
    assert (tmp_path / "parts" / "log.csv").read_bytes() == (tmp_path / "whole" / "log.csv").read_bytes()


SCRIPT = """
import os, signal, sys
from tests.training.test_resume import made, train

model, task, optimizer, scheduler = made(sys.argv[1])
for record in train(model, task, optimizer, steps=11, folder=sys.argv[2], checkpoint_every=4,
                    evaluate_every=3, clip=0.5, scheduler=scheduler):
    if record.step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_resumed_is_the_run(tmp_path):
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "adam", str(tmp_path / "parts")],
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        cwd=root,
    )
    assert done.returncode == -signal.SIGKILL
    assert [p.name for p in checkpoints(tmp_path / "parts")] == [
        "checkpoint-000000000.pt",
        "checkpoint-000000004.pt",
    ]
    assert len(read_log(tmp_path / "parts")) == 6, "rows beyond the checkpoint are there, and are cut"
    whole = run("adam", tmp_path / "whole")
    assert same(run("adam", tmp_path / "parts", resume=True), whole)
    assert (tmp_path / "parts" / "log.csv").read_bytes() == (tmp_path / "whole" / "log.csv").read_bytes()


def test_a_write_that_fails_leaves_the_checkpoints_as_they_were(tmp_path, monkeypatch):
    whole = run("adam", tmp_path / "whole")

    def fails(content, file):
        file.write(b"half of a checkpoint")
        raise OSError("no space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):  # noqa: PT012
        model, task, optimizer, scheduler = made("adam")
        options = {"checkpoint_every": 4, "evaluate_every": 3, "clip": 0.5, "scheduler": scheduler}
        for record in train(model, task, optimizer, steps=11, folder=tmp_path / "parts", **options):
            if record.step == 5:
                patch.setattr(torch, "save", fails)
    names = sorted(p.name for p in (tmp_path / "parts").iterdir())
    assert names == ["checkpoint-000000000.pt", "checkpoint-000000004.pt", "log.csv", "run.json"]
    assert same(run("adam", tmp_path / "parts", resume=True), whole)


def test_what_a_kill_left_half_written_is_cleared(tmp_path):
    run("adam", tmp_path, until=5)
    torn = tmp_path / ".checkpoint-000000008.pt.abc.part"
    torn.write_bytes(b"half")
    with (tmp_path / "log.csv").open("a") as log:
        log.write("6,0.12")
    run("adam", tmp_path, resume=True)
    assert not torn.exists()
    assert read_log(tmp_path).step.tolist() == list(range(1, 12))


def test_only_the_newest_two_checkpoints_are_kept(tmp_path):
    run("adam", tmp_path)
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-000000008.pt", "checkpoint-000000011.pt"]


def test_a_folder_with_a_run_is_not_touched_unasked(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    run("adam", tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(
        FileExistsError, match=r"has a run already\. Resume it, overwrite it, or name another"
    ):
        run("adam", tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    run("adam", tmp_path, steps=2, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint-000000000.pt",
        "checkpoint-000000002.pt",
        "log.csv",
        "notes.txt",
        "run.json",
    ]


def test_what_cannot_be_resumed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run to resume in .*nowhere: it has no checkpoint"):
        run("adam", tmp_path / "nowhere", resume=True)
    with pytest.raises(ValueError, match="resume and overwrite exclude each other"):
        run("adam", tmp_path / "nowhere", resume=True, overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="file must be a folder; it is a file"):
        run("adam", tmp_path / "file")
    run("adam", tmp_path / "run", steps=2)
    with pytest.raises(
        ValueError, match=r"its own task; it has task 'next character', not 'sequential digits'"
    ):
        run("adam digits", tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"it has core LNLSTM\(.*\), not LSTM\(.*\); .*; and 19 others"):
        run("adam dropout", tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="it has the optimizer Adam, not AdamW"):
        run("adamw", tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="it has the scheduler OneCycleLR, not NoneType"):
        run("adam", tmp_path / "run", resume=True, scheduler=None)
    (tmp_path / "run" / "log.csv").write_text("step\n")
    with pytest.raises(
        ValueError, match=r"log.csv must have the \d+ bytes that it had at the checkpoint; it has 5"
    ):
        run("adam", tmp_path / "run", resume=True)
    checkpoints(tmp_path / "run")[-1].write_bytes(b"torn")
    with pytest.raises(
        ValueError, match=r"-000000002.pt must be a checkpoint; .* Delete it to go on from the one"
    ):
        run("adam", tmp_path / "run", resume=True)


OTHERS = {
    "eps": ({"eps": 0.1}, "norm_input GainBiasNorm.segments=.24,., eps=1e-05., not .*eps=0.1"),
    "gain": ({"initial_gain": 0.1}, r"eps=1e-05., not GainBiasNorm\(.*, gain=0.1\)"),
    "placement": ({"placement": Placement(per_gate=True)}, r"per_gate=False\)\), not .*per_gate=True"),
    "dropout": ({"dropout": 0.5}, "core LNLSTM.*dropout=0., not .*dropout=0.5"),
    "dtype": ({"dtype": torch.float64}, "core.layer0.weight_input torch.float32, not torch.float64"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_run_goes_on_with_no_other_model_of_the_same_shape(other, tmp_path):
    (options, message), dtype = OTHERS[other], torch.float64 if other == "dtype" else torch.float32
    model, task = small(core=LNLSTM)
    list(train(model, task, torch.optim.SGD(model.parameters(), lr=0.1), steps=2, folder=tmp_path))
    model, task = small(core=lambda *sizes: LNLSTM(*sizes, **options), dtype=dtype)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(ValueError, match=message):
        train(model, task, torch.optim.SGD(model.parameters(), lr=0.1), steps=4, folder=tmp_path, resume=True)
    assert same(model.parameters(), before)


def test_the_one_before_serves_when_the_newest_is_deleted(tmp_path):
    whole = run("adam", tmp_path / "whole")
    run("adam", tmp_path / "parts")
    checkpoints(tmp_path / "parts")[-1].unlink()
    assert same(run("adam", tmp_path / "parts", resume=True), whole)
    assert (tmp_path / "parts" / "log.csv").read_bytes() == (tmp_path / "whole" / "log.csv").read_bytes()


def test_a_checkpoint_executes_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, ("touch executed",)

    torch.save({"step": Evil()}, tmp_path / "checkpoint-000000001.pt")
    with pytest.raises(ValueError, match="must be a checkpoint"):
        load_checkpoint(tmp_path / "checkpoint-000000001.pt")
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_checkpoint(tmp_path / "nowhere.pt")


@pytest.mark.parametrize("numpy_in", ["rate", "scheduler"])
def test_numbers_of_numpy_are_saved_as_plain_ones(tmp_path, numpy_in):
    def begun():
        model, task = small(core=LNLSTM)
        rate = np.logspace(-2, 0, 5)[2] if numpy_in == "rate" else 0.1
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        decay = (lambda t: np.cos(t / 50)) if numpy_in == "scheduler" else (lambda t: 1.0)
        return model, task, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, decay)

    def run(steps, folder, **options):
        model, task, optimizer, scheduler = begun()
        list(train(model, task, optimizer, steps=steps, scheduler=scheduler, folder=folder, **options))
        return model

    whole = run(9, tmp_path / "whole")
    run(6, tmp_path / "parts", checkpoint_every=2)
    resumed = run(9, tmp_path / "parts", resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


@pytest.mark.parametrize("content", [{"step": 1}, [1]], ids=str)
def test_a_file_that_is_no_checkpoint_of_a_run(tmp_path, content):
    torch.save(content, tmp_path / "checkpoint-000000001.pt")
    with pytest.raises(ValueError, match=r"must be a checkpoint of a run, with generator, .*; it is somethi"):
        run("adam", tmp_path, resume=True)


def test_a_whole_checkpoint_is_not_called_damaged(tmp_path):
    path = tmp_path / "checkpoint-000000001.pt"
    torch.save({"odd": Path("x")}, path)
    with pytest.raises(ValueError, match="it is whole, but holds other objects"):
        load_checkpoint(path)


def test_a_start_that_is_refused_writes_nothing(tmp_path):
    model, task = small()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="finite"):
        train(model, task, torch.optim.SGD(model.parameters(), lr=0.1), steps=2, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
