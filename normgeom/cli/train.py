"""`normgeom train`."""

import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer
from rich.console import Console

from normgeom.cli import _run_options as options
from normgeom.cli._options import usable_device
from normgeom.processes import joined, place
from normgeom.training import Settings, TrainingStopped, evaluate, read_log, with_progress_bar
from normgeom.training import train as run

if TYPE_CHECKING:
    from typer import Context
else:
    # What typer passes is of the class that its Context is derived from.
    Context = typer.Context.__base__

OWN = Settings()


def train(
    context: Context,
    task: options.Task = OWN.task,
    *,
    out: options.Out,
    cell: options.Cell = OWN.cell,
    hidden: options.Hidden = OWN.hidden,
    layers: options.Layers = OWN.layers,
    norm_input: options.NormInput = None,
    norm_recurrent: options.NormRecurrent = None,
    norm_cell: options.NormCell = None,
    joint: options.Joint = None,
    per_gate: options.PerGate = None,
    initial_gain: options.InitialGain = OWN.initial_gain,
    length: options.Length = OWN.length,
    batch: options.Batch = OWN.batch,
    held_out: options.HeldOut = OWN.held_out,
    whole_vocabulary: options.WholeVocabulary = OWN.whole_vocabulary,
    optimizer: options.Optimizer = OWN.optimizer,
    lr: options.LearningRate = None,
    weight_decay: options.WeightDecay = OWN.weight_decay,
    clip: options.Clip = OWN.clip,
    steps: options.Steps = OWN.steps,
    seed: options.Seed = OWN.seed,
    evaluate_every: options.EvaluateEvery = OWN.evaluate_every,
    checkpoint_every: options.CheckpointEvery = 500,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    device: options.Device = "cpu",
    parquet: options.Parquet = False,
    tensorboard: options.TensorBoard = False,
) -> None:
    """Train a recurrent model and report held-out bits per character (for digits: per label).

    The folder gets log.csv (a row a step), run.json (the options) and the two newest checkpoints. Ctrl-C or
    SIGTERM writes a checkpoint and stops; --resume goes on from it. The end of a text is held out, of the
    digits a fifth. On several processes: torchrun --nproc-per-node 2 -m normgeom.cli train ...
    """
    given = {f.name: context.params[f.name] for f in dataclasses.fields(Settings)}
    settings = _of_the_run(out, given, context) if resume else Settings(**given)
    where = {"folder": out, "resume": resume, "overwrite": overwrite, "parquet": parquet,
             "tensorboard": tensorboard, "checkpoint_every": checkpoint_every}  # fmt: skip
    with joined(usable_device(device)) as own:
        _train(settings, own, where)


def _of_the_run(out: Path, given: dict[str, Any], context: Context) -> Settings:
    """Return the settings of the run in a folder; only the number of steps may be another one."""
    path = out / "run.json"
    if not path.is_file():
        raise FileNotFoundError(f"no run to resume in {out}: there is no {path}.")
    try:
        kept = json.loads(path.read_text())["settings"]
        own = Settings(**kept)
    except (ValueError, KeyError, TypeError) as why:
        raise ValueError(f"{path} must hold the settings of a run of normgeom train ({why}).") from None
    typed = {name for name in given if _typed(context, name)} - {"steps"}
    other = [f"{n} {kept[n]!r}, not {given[n]!r}" for n in sorted(typed) if given[n] != kept[n]]
    if other:
        raise ValueError(f"a resumed run keeps its options; the one in {out} has {'; '.join(other)}.")
    return dataclasses.replace(own, steps=given["steps"]) if _typed(context, "steps") else own


def _typed(context: Context, name: str) -> bool:
    """Whether an option was given, so that it is not there by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _train(settings: Settings, device: Any, where: dict[str, Any]) -> None:
    """Make the run and print what came out; one process of several prints."""
    quiet, started, last = place()[0] > 0, time.monotonic(), None
    task = settings.make_task().to(device)
    model = settings.make_model(task.classes).to(device)
    records = run(
        model,
        task,
        settings.make_optimizer(model.parameters()),
        steps=settings.steps,
        clip=settings.clip or None,
        evaluate_every=settings.evaluate_every,
        generator=torch.Generator().manual_seed(settings.seed),
        settings=dataclasses.asdict(settings),
        **where,
    )
    console, made = Console(stderr=True, quiet=quiet), 0
    try:
        for record in with_progress_bar(records, steps=settings.steps, console=console):
            last, made = record, made + 1
    except TrainingStopped as why:
        console.print(str(why), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(128 + why.signal) from None
    if last is not None and last.held_out_bits is not None and last.held_out_accuracy is not None:
        bits, accuracy = last.held_out_bits, last.held_out_accuracy
    else:
        found = evaluate(model, task.share(*place()))
        bits, accuracy = found.bits, found.accuracy
    if not quiet:
        _print(settings, bits, accuracy, made, time.monotonic() - started, where["folder"])


def _print(settings: Settings, bits: float, accuracy: float, made: int, seconds: float, out: Path) -> None:
    """Print the end of a run."""
    what = "label" if settings.task == "digits" else "character"
    step = len(read_log(out))
    here = "" if made == step else f", {made} of them now"
    print(f"held out  {bits:.4f} bits per {what}, {100 * accuracy:.1f} % right")
    print(f"steps     {step}{here}")
    print(f"time      {seconds:.1f} s" + (f", {made / seconds:.1f} steps/s" if made else ""))
    print("files     " + ", ".join(str(file) for file in sorted(out.iterdir())))
