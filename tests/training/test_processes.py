"""Two processes that share every batch do what one does."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from normgeom.models import LNLSTM
from normgeom.training import TrainingStopped, checkpoints, evaluate, load_checkpoint, read_log, train
from tests.training.oracles import small


def run(folder, *, steps=7, until=None, **options):
    """Train in a folder, across the end of the streams; return records and parameters."""
    model, task = small(core=LNLSTM, length=30, dtype=torch.float64, pieces=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    options = {"clip": 0.3, "evaluate_every": 3, "checkpoint_every": 2, **options}
    records = []
    for record in train(model, task, optimizer, steps=steps, folder=folder, **options):
        records.append(dataclasses.astuple(record))
        if record.step == until:
            break
    return records, [p.detach().clone() for p in model.parameters()]


def _one_of_two(rank, folder):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    try:
        torch.set_num_threads(1)
        whole = run(f"{folder}/two")
        run(f"{folder}/parts", until=5)
        dist.barrier()
        resumed = run(f"{folder}/parts", resume=True)
        with pytest.raises(TrainingStopped, match="after step 2") as why:  # noqa: PT012
            model, task = small(core=LNLSTM)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            for record in train(model, task, optimizer, steps=9, folder=f"{folder}/stopped"):
                if record.step == 1 and rank == 1:
                    signal.raise_signal(signal.SIGTERM)
        model, task = small(core=LNLSTM, pieces=3)
        shared = evaluate(model, task.share(rank, 2))
        torch.save((whole, resumed, why.value.signal, dataclasses.astuple(shared)), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    multiprocessing.spawn(_one_of_two, (str(folder),), nprocs=2)
    return folder


def assert_near(found, expected):
    for one, other in zip(found[0], expected[0], strict=True):
        assert [v or 0 for v in one] == pytest.approx([v or 0 for v in other], rel=1e-9)
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_two_processes_make_the_steps_of_one(folder, tmp_path):
    one = run(tmp_path)
    for rank in range(2):
        assert_near(torch.load(folder / f"{rank}.pt")[0], one)
    assert len(read_log(folder / "two")) == 7, "one of them writes"


def test_a_resumed_run_of_two_processes_is_the_run(folder):
    for rank in range(2):
        whole, resumed, *_ = torch.load(folder / f"{rank}.pt")
        assert resumed[0] == whole[0][4:], "from the checkpoint of step 4"
        assert all(torch.equal(a, b) for a, b in zip(whole[1], resumed[1], strict=True))
    assert (folder / "two" / "log.csv").read_bytes() == (folder / "parts" / "log.csv").read_bytes()


def test_one_process_goes_on_where_two_left(folder, tmp_path):
    for file in [*checkpoints(folder / "two"), folder / "two" / "log.csv"]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    checkpoints(tmp_path)[-1].unlink()
    state = load_checkpoint(checkpoints(tmp_path)[-1])["state"]
    assert [tuple(s.shape) for s in state] == [(1, 4, 6), (1, 4, 6)], "the streams of both"
    found = run(tmp_path, resume=True)
    whole = run(tmp_path / "whole")
    assert_near(found, (whole[0][6:], whole[1]))


def test_both_stop_at_the_same_step_when_one_is_asked_to(folder):
    assert [torch.load(folder / f"{rank}.pt")[2] for rank in range(2)] == [signal.SIGTERM] * 2
    assert [p.name for p in checkpoints(folder / "stopped")][-1] == "checkpoint-000000002.pt"


def test_an_evaluation_is_shared(folder):
    model, task = small(core=LNLSTM, pieces=3)
    expected = dataclasses.astuple(evaluate(model, task))
    for rank in range(2):
        assert torch.load(folder / f"{rank}.pt")[3] == pytest.approx(expected)


def test_torchrun(tmp_path):
    root = str(Path(__file__).parents[2])
    text = tmp_path / "text.txt"
    text.write_text("one two three four " * 40)
    options = (
        f"{text} --out {tmp_path}/run --cell gru --hidden 4 --batch 4 --length 5 --steps 3 --eval-every 2"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
         "--rdzv-endpoint", "localhost:0", "-m", "normgeom.cli", "train", *options.split()],
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        cwd=root, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("bits per character") == 1
    assert read_log(tmp_path / "run").step.tolist() == [1, 2, 3]
