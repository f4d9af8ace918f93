"""Training runs that analyses of recurrent models share: two tasks, the same draws for what is compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from analyses._run import Options
from normgeom.models import CharLM, RowDigits
from normgeom.training import Corpus, NextCharacter, NonFiniteTraining, SequentialDigits, evaluate, train

Row = dict[str, Any]
UNITS = {"text": "bits per character", "digits": "bits per image"}
NAMES = {"text": "novel, character by character", "digits": "digits, row by row"}
HELD_OUT = 16384
"""Characters at the start of the held-out part that a point of a curve is measured on."""


@dataclass(frozen=True)
class Size:
    """How long and how large runs are; `steps` by task."""

    seeds: int
    hidden: int
    steps: Mapping[str, int]
    points: int
    length: int = 50
    batch: int = 16
    lr: float = 0.005


def size_of(options: Options, seeds: int = 3) -> Size:
    """Return the size for these options."""
    if options.quick:
        return Size(2, 16, {"text": 8, "digits": 8}, 2, length=20, batch=8)
    if options.full:
        return Size(seeds + 2, 128, {"text": 1000, "digits": 600}, 20, length=64, batch=32, lr=0.002)
    return Size(seeds, 64, {"text": 200, "digits": 100}, 8)


def task_of(name: str, seed: int, size: Size, options: Options) -> Any:
    """Return a task; a quick run reads less of the novel's held-out part."""
    if name == "digits":
        return SequentialDigits(batch_size=32, seed=seed)
    corpus = Corpus.from_novel()
    held_out = corpus.held_out[: 1024 if options.quick else HELD_OUT]
    return NextCharacter(
        replace(corpus, held_out=held_out), length=size.length, batch_size=size.batch, pieces=64
    )


def model_of(task: Any, make_core: Callable[[int], Any], seed: int) -> CharLM | RowDigits:
    """Return a model; those of one seed have the same W_x, W_h (if of one size) and readout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        text = isinstance(task, NextCharacter)
        core = make_core(task.classes if text else 8)
        model = CharLM(core, task.classes) if text else RowDigits(core, task.classes)
        torch.manual_seed(seed)
        model.readout.reset_parameters()
    return model


def curve(model: Any, task: Any, steps: int, size: Size, options: Options) -> list[Row]:
    """Train with Adam and clipping; return held-out bits at about evenly spaced steps.

    A run that meets a value that is not finite stops; its later points are NaN.
    """
    model = model.to(options.device)
    task = task.to(torch.device(options.device))
    optimizer = torch.optim.Adam(model.parameters(), lr=size.lr)
    wanted = sorted({0, *np.linspace(0, steps, size.points + 1).round().astype(int).tolist()})
    found = {0: evaluate(model, task)}
    try:
        for record in train(model, task, optimizer, steps=steps, clip=1.0):
            if record.step in wanted:
                found[record.step] = evaluate(model, task)
    except NonFiniteTraining:
        pass
    return [
        {"step": step, "bits": found[step].bits if step in found else float("nan"),
         "accuracy": found[step].accuracy if step in found else float("nan")}
        for step in wanted
    ]  # fmt: skip


def last(rows: Sequence[Row], keys: Sequence[str], value: str = "bits") -> dict[tuple[Any, ...], float]:
    """Return the value at the last step, by the named keys of a row."""
    end: dict[Any, int] = {}
    for row in rows:
        end[row["task"]] = max(row["step"], end.get(row["task"], 0))
    return {
        tuple(row[key] for key in keys): _number(row[value])
        for row in rows
        if row["step"] == end[row["task"]]
    }


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over seeds and its standard error, NaN for one seed."""
    given = np.array(values, dtype=float)
    return float(given.mean()), float(given.std(ddof=1) / len(given) ** 0.5) if len(given) > 1 else np.nan


def signed(value: float, digits: int = 2) -> str:
    """Return a number with its sign, with a true minus, plus for a zero."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")
