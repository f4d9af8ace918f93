import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from normgeom.training import CELLS, OPTIMIZERS, Settings, checkpoints, evaluate, load_checkpoint, read_log

SMALL = ("--hidden", "4", "--batch", "4", "--length", "5", "--steps", "4", "--eval-every", "2")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a text, which is the current one."""
    (tmp_path / "text.txt").write_text("one two three four; " * 30)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(out):
    """The model in the folder of a run, and its task."""
    settings = Settings(**json.loads((out / "run.json").read_text())["settings"])
    task = settings.make_task()
    model = settings.make_model(task.classes)
    model.load_state_dict(load_checkpoint(checkpoints(out)[-1])["model"])
    return model, task


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_is_trained_and_what_is_printed_is_so(normgeom, folder, cell):
    code, out, err = normgeom("train", "text.txt", "--out", "run", "--cell", cell, *SMALL)
    assert (code, err) == (0, "")
    found = evaluate(*trained(folder / "run"))
    assert f"held out  {found.bits:.4f} bits per character, {100 * found.accuracy:.1f} % right" in out
    assert "steps     4\n" in out
    assert (
        "files     run/checkpoint-000000000.pt, run/checkpoint-000000004.pt, run/log.csv, run/run.json" in out
    )
    assert read_log("run").held_out_bits.iloc[-1] == pytest.approx(found.bits, rel=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_has_a_learning_rate_that_works(normgeom, folder, name):
    assert normgeom("train", "text.txt", "--out", "run", *SMALL, "--steps", "60", "--optimizer", name)[0] == 0
    log = read_log("run")
    assert log.learning_rate.unique().tolist() == [OPTIMIZERS[name][2]]
    assert log.bits.iloc[-1] < log.bits.iloc[0]


def test_digits_and_the_novel(normgeom, folder):
    code, out, _ = normgeom("train", "digits", "--out", "digits", *SMALL, "--steps", "3", "--cell", "ln-gru")
    assert code == 0
    assert f"{evaluate(*trained(folder / 'digits')).bits:.4f} bits per label" in out
    assert normgeom("train", "--out", "novel", *SMALL[:8], "--steps", "1", "--eval-every", "0")[0] == 0
    assert trained(folder / "novel")[1].corpus.name == "persuasion"


def test_the_options_reach_the_run(normgeom, folder):
    options = "--layers 2 --no-norm-cell --per-gate --initial-gain 0.1 --optimizer sgdm --lr 0.25"
    options += " --weight-decay 0.5 --clip 0.01 --seed 3 --checkpoint-every 3"
    assert normgeom("train", "text.txt", "--out", "run", *SMALL, *options.split())[0] == 0
    model, task = trained(folder / "run")
    assert (model.core.num_layers, model.core.placement.cell, model.core.placement.per_gate) == (
        2,
        False,
        True,
    )
    content = load_checkpoint(checkpoints("run")[-1])
    (group,) = content["optimizer"]["param_groups"]
    assert [group[k] for k in ("lr", "momentum", "weight_decay")] == [0.25, 0.9, 0.5]
    assert (task.length, task.batch_size) == (5, 4)
    assert [p.name for p in checkpoints("run")] == ["checkpoint-000000003.pt", "checkpoint-000000004.pt"]
    start = Settings(cell="ln-lstm", initial_gain=0.1).make_model(9)
    assert float(start.core.cells()["layer0"].norm_input.gain[0].detach()) == pytest.approx(0.1)


def test_seeds(normgeom, folder):
    state = torch.get_rng_state()
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        normgeom("train", "text.txt", "--out", name, *SMALL, "--seed", seed)
    logs = [(folder / name / "log.csv").read_bytes() for name in "abc"]
    assert logs[0] == logs[1] != logs[2]
    assert torch.equal(state, torch.get_rng_state())


def test_resume_takes_the_options_of_the_run(normgeom, folder):
    options = (*SMALL, "--cell", "gru", "--optimizer", "adamw", "--seed", "7")
    normgeom("train", "text.txt", "--out", "whole", *options, "--steps", "9")
    normgeom("train", "text.txt", "--out", "parts", *options, "--steps", "5")
    code, out, _ = normgeom("train", "--out", "parts", "--resume", "--steps", "9")
    assert (code, "steps     9, 4 of them now" in out) == (0, True)
    assert (folder / "parts" / "log.csv").read_bytes() == (folder / "whole" / "log.csv").read_bytes()
    code, out, _ = normgeom("train", "--out", "parts", "--resume")
    assert (code, "steps     9, 0 of them now" in out) == (0, True)


def test_overwrite(normgeom, folder):
    for extra in ((), ("--overwrite", "--cell", "rnn")):
        assert normgeom("train", "text.txt", "--out", "run", *SMALL, *extra)[0] == 0
    assert json.loads((folder / "run" / "run.json").read_text())["settings"]["cell"] == "rnn"


def test_help_tells_it_all(normgeom):
    code, out, _ = normgeom("train", "--help")
    assert code == 0
    options = [
        "cell",
        "hidden",
        "layers",
        "norm-input",
        "no-norm-input",
        "norm-recurrent",
        "norm-cell",
        "joint",
        "per-gate",
        "initial-gain",
        "length",
        "batch",
        "optimizer",
        "lr",
        "weight-decay",
        "clip",
        "steps",
        "seed",
        "eval-every",
        "checkpoint-every",
        "out",
        "resume",
        "overwrite",
        "device",
        "tensorboard",
        "parquet",
    ]
    words = ["digits", "persuasion", "text file", *CELLS, *OPTIMIZERS, "torchrun"]
    for fact in [*words, *(f"--{option} " for option in options)]:
        assert fact in out


def start(*arguments):
    """Start the command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "normgeom.cli", "train", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_sigterm_writes_a_checkpoint_from_which_the_run_goes_on(normgeom, folder):
    process = start("text.txt", "--out", "run", *SMALL, "--steps", "1000000")
    while not (folder / "run" / "log.csv").exists() or len(read_log("run")) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    step = len(read_log("run"))
    assert (process.returncode, out) == (128 + signal.SIGTERM, "")
    assert err.strip() == (
        f"stopped by SIGTERM after step {step}, which run/checkpoint-{step:09d}.pt holds; resume to go on."
    )
    assert normgeom("train", "--out", "run", "--resume", "--steps", str(step + 3))[0] == 0
    normgeom("train", "text.txt", "--out", "whole", *SMALL, "--steps", str(step + 3))
    assert (folder / "run" / "log.csv").read_bytes() == (folder / "whole" / "log.csv").read_bytes()


HUGE = ("--lr", "1e38", "--optimizer", "sgd", "--clip", "0")
GOOD = ("text.txt", "--out", "run", *SMALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.txt", *GOOD[1:]), "no file or folder nowhere.txt; a text is a novel (persuasion)"),
        (("empty.txt", *GOOD[1:]), "empty.txt must hold text; it is empty"),
        (("odd.txt", *GOOD[1:]), "of odd.txt must occur in the 36 characters to train on; '!'"),
        (("odd.txt", *GOOD[1:]), "--whole-vocabulary), or hold out another part (held_out, --held-out)"),
        ((*GOOD, "--held-out", "0"), "held_out must be a fraction between 0 and 1; got 0.0"),
        (("digits", *GOOD[1:], "--whole-vocabulary"), "are of texts; the task is digits"),
        ((*GOOD, "--length", "500"), "length + 1 = 2001 characters; it has 540"),
        ((*GOOD, "--cell", "transformer"), "cell must be among ln-lstm, ln-gru, ln-rnn, draw-lstm, lstm"),
        ((*GOOD, "--cell", "lstm", "--norm-cell"), "ln-gru, ln-rnn, draw-lstm; got cell for lstm"),
        ((*GOOD, "--cell", "gru", "--initial-gain", "0.1"), "got initial_gain for gru, which has none"),
        ((*GOOD, "--cell", "ln-gru", "--norm-cell"), "LNGRUCell has no cell state to normalize"),
        ((*GOOD, "--joint", "--no-norm-input"), "joint statistics are those of W_h h + W_x x"),
        ((*GOOD, "--optimizer", "lion"), "optimizer must be among sgd, sgdm, adam, adamw; got 'lion'"),
        ((*GOOD, "--lr", "-1"), "Invalid learning rate: -1.0"),
        ((*GOOD, "--hidden", "0"), "hidden must be at least 1; got 0"),
        ((*GOOD, "--cell", "lstm", "--hidden", "-2"), "hidden must be at least 1; got -2"),
        ((*GOOD, "--cell", "lstm", "--layers", "0"), "layers must be at least 1; got 0"),
        ((*GOOD, "--batch", "-4"), "batch must be at least 1; got -4"),
        ((*GOOD, "--steps", "0"), "steps must be at least 1; got 0"),
        ((*GOOD, "--initial-gain", "nan"), "initial_gain must be a finite number; got nan"),
        ((*GOOD, "--clip", "-1"), "clip must be a norm above 0, or 0 for none; got -1.0"),
        ((*GOOD, "--seed", "-1"), "seed must be from 0 to 2^63 - 1; got -1"),
        ((*GOOD, "--eval-every", "-1"), "evaluate_every must be a number of steps"),
        ((*GOOD, "--device", "abacus"), "--device must be one this torch can use; got 'abacus'"),
        ((*GOOD, "--resume"), "no run to resume in run: there is no run/run.json"),
        ((*GOOD[:1], "--out", "done", *GOOD[3:]), "done has a run already. Resume it, overwrite"),
        (("--out", "done", "--resume", "--lr", "3"), "its options; the one in done has lr None, not 3.0"),
        (("--out", "done", "--resume", "--overwrite"), "resume and overwrite exclude each other"),
        (("--out", "broken", "--resume"), "broken/run.json must hold the settings of a run"),
        ((*GOOD, "--steps", "30", *HUGE), "the last good checkpoint is run/"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_bad_arguments_are_one_line_and_exit_code_2(normgeom, folder, arguments, message):
    (folder / "empty.txt").write_text("")
    (folder / "odd.txt").write_text("ab" * 19 + "!?")
    normgeom("train", "text.txt", "--out", "done", *SMALL, "--steps", "1")
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{}")
    code, out, err = normgeom("train", *arguments)
    assert (code, out) == (2, "")
    assert message.lower() in err.lower()
    assert err.count("\n") == 1


def test_a_character_of_the_end_alone_can_be_taken_in(normgeom, folder):
    (folder / "odd.txt").write_text("one two three four; " * 30 + "é" * 2)
    code, out, _ = normgeom(
        "train", "odd.txt", *GOOD[1:], "--whole-vocabulary", "--held-out", "0.2", "--steps", "1"
    )
    assert (code, "bits per character" in out) == (0, True)
    assert normgeom("train", "--out", "run", "--resume", "--steps", "2")[0] == 0
