"""The training loop: what users and analyses iterate over."""

import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from normgeom.processes import place
from normgeom.training.evaluation import evaluate
from normgeom.training.folder import RunFolder
from normgeom.training.loop import Loop, NonFiniteTraining, StepRecord, plain
from normgeom.training.signals import TrainingStopped, requests_to_stop
from normgeom.training.tasks import Task, check_at_least_1, check_model_and_task, check_whole


def train(
    model: nn.Module,
    task: Task,
    optimizer: Optimizer,
    *,
    steps: int,
    scheduler: Any = None,
    clip: float | None = None,
    evaluate_every: int = 0,
    generator: torch.Generator | None = None,
    folder: str | Path | None = None,
    checkpoint_every: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    parquet: bool = False,
    tensorboard: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[StepRecord]:
    """Train a model, one step for each record that is taken from the iterator.

    Between two records the model, the optimizer and the global random state are the caller's, who may look
    at anything and put hooks on the optimizer around the loop. With a folder, the run is logged
    there and can be resumed: on a CPU, a run that was stopped or killed and then resumed has the parameters
    and the log, bit for bit, of one that was not. With processes started by torchrun (and
    `torch.distributed` initialized), each takes its share of every batch and gradients are averaged.

    Args:
        model: a model of the task, such as CharLM; trained where it is.
        task: what is learned; it is put on the model's device.
        optimizer: one of torch.optim over parameters of the model, that steps without a closure.
        steps: the number of steps when the run ends, those before a resumption included.
        scheduler: one of torch.optim.lr_scheduler, stepped after every step; not one that needs a metric.
        clip: largest norm of the gradient, over all parameters of the optimizer; None does not clip.
        evaluate_every: steps between evaluations on the held-out part; 0 never evaluates.
        generator: where dropout's random numbers come from; seed 0 if not given.
        folder: where to write `log.csv`, `run.json` and checkpoints; nothing is written if not given.
        checkpoint_every: steps between checkpoints; one is written at the start, at the end, and when a
            signal stops the run, in any case, but not when the caller leaves the loop early.
        resume: go on from the newest checkpoint in the folder.
        overwrite: delete a run that is in the folder.
        parquet: write `log.parquet` too, with every checkpoint (package pyarrow).
        tensorboard: write the log for TensorBoard too (package tensorboard).
        settings: what `run.json` is to say about the run.

    Raises:
        TypeError: if the optimizer or the scheduler steps on something else than the gradient.
        ValueError: for numbers out of range; a folder that has a run already, or one of another task or
            model; a package that is missing; an optimizer without parameters of the model.
        NonFiniteTraining: (a ValueError) if loss, gradient or a parameter is not finite; the message names
            the step, the learning rate, the norm of the gradient and the last good checkpoint.
        TrainingStopped: (a KeyboardInterrupt) after SIGINT or SIGTERM, when the checkpoint is written.

    Source: Pascanu, Mikolov, Bengio 2013 (arXiv:1211.5063), algorithm 1, for clipping.

    >>> from normgeom.models import CharLM
    >>> from normgeom.training import Corpus, NextCharacter
    >>> with torch.random.fork_rng():
    ...     _ = torch.manual_seed(0)
    ...     model = CharLM(nn.GRU(4, 16), 4)
    >>> task = NextCharacter(Corpus.from_string("abcd" * 50), length=10, batch_size=4)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    >>> records = list(train(model, task, optimizer, steps=40, clip=1.0, evaluate_every=20))
    >>> len(records), records[-1].held_out_bits < 0.2  # from 2 bits for one of 4 characters
    (40, True)
    """
    check_model_and_task(model, task)
    _check_numbers(steps, evaluate_every, checkpoint_every, clip)
    _check_optimizer(model, optimizer, scheduler)
    if not isinstance(generator, torch.Generator | None):
        raise TypeError(f"generator must be a torch.Generator; got {type(generator).__name__}.")
    if folder is None and (resume or overwrite or parquet or tensorboard or checkpoint_every):
        raise ValueError("resume, overwrite, parquet, tensorboard and checkpoint_every need a folder.")
    if place()[1] > 1 and not isinstance(model, DistributedDataParallel):
        model = DistributedDataParallel(model)
    own = task.share(*place()).to(next(model.parameters()).device)
    random = torch.Generator().manual_seed(0) if generator is None else generator
    loop = Loop(model, own, optimizer, scheduler, clip, random)
    if folder is None:
        return _steps(loop, steps, evaluate_every)
    run = RunFolder(Path(folder), loop, parquet=parquet, tensorboard=tensorboard)
    run.open(resume=resume, overwrite=overwrite, settings=settings or {})
    return _kept(_steps(loop, steps, evaluate_every), run, checkpoint_every)


def _steps(loop: Loop, steps: int, evaluate_every: int) -> Iterator[StepRecord]:
    """Make the steps that are left."""
    while loop.step < steps:
        record = loop.advance()
        if evaluate_every and record.step % evaluate_every == 0:
            found = evaluate(plain(loop.model), loop.task)
            record = replace(record, held_out_bits=found.bits, held_out_accuracy=found.accuracy)
        yield record


def _kept(records: Iterator[StepRecord], run: RunFolder, checkpoint_every: int) -> Iterator[StepRecord]:
    """Log the steps and write checkpoints; end with one, also when asked to stop."""
    with requests_to_stop() as requests, run.logs() as write:
        try:
            for record in records:
                write(record)
                stop = requests.agreed(next(run.loop.model.parameters()).device)
                if stop or (checkpoint_every and record.step % checkpoint_every == 0):
                    run.save()
                yield record
                if stop:
                    raise TrainingStopped(
                        f"stopped by {signal.Signals(stop).name} after step {record.step}, which "
                        f"{run.newest()} holds; resume to go on.",
                        stop,
                    )
            run.save()
        except NonFiniteTraining as why:
            raise NonFiniteTraining(f"{why} The last good checkpoint is {run.newest()}.") from None


def _check_numbers(steps: int, evaluate_every: int, checkpoint_every: int, clip: float | None) -> None:
    check_at_least_1(steps=steps)
    for name, value in {"evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every}.items():
        check_whole(**{name: value})
        if value < 0:
            raise ValueError(f"{name} must be a number of steps, or 0 for never; got {value}.")
    if clip is not None and not (isinstance(clip, Real) and clip > 0):
        raise ValueError(f"clip must be a norm above 0, or None; got {clip!r}.")


def _check_optimizer(model: nn.Module, optimizer: Optimizer, scheduler: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be one of torch.optim; got {type(optimizer).__name__}.")
    if isinstance(optimizer, LBFGS):
        raise TypeError("optimizer must step without a closure; got LBFGS.")
    if scheduler is not None and not hasattr(scheduler, "step"):
        raise TypeError(f"scheduler must be one of torch.optim; got {type(scheduler).__name__}.")
    if isinstance(scheduler, ReduceLROnPlateau):
        raise TypeError("scheduler must step without a metric; got ReduceLROnPlateau.")
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise ValueError("scheduler must be built from the optimizer; it has another one.")
    own = {id(p) for p in model.parameters() if p.requires_grad}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            "optimizer must be over parameters of the model; it has none of them that require a gradient. "
            "Build it from model.parameters(), after the model is on its device."
        )
