"""The options of `normgeom train`: their types, their help, and where the help lists them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from normgeom.training import CELLS, NOVELS, OPTIMIZERS

_RATES = ", ".join(f"{name} {made[2]}" for name, made in OPTIMIZERS.items())


def _model(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel="Model")


def _data(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel="Data")


def _optimizer(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel="Optimizer")


def _run(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Run")


_TASK = (
    f"What to learn: digits, a novel ({', '.join(NOVELS)}), or the path of a text file or of a folder of "
    ".txt and .txt.gz files."
)
Task = Annotated[str, typer.Argument(help=_TASK)]

Cell = Annotated[str, _model(", ".join(CELLS) + ".")]
Hidden = Annotated[int, _model("Units of a layer.")]
Layers = Annotated[int, _model("Number of layers.")]
NormInput = Annotated[bool | None, _model("LN of W_x x; as in the paper if not given.")]
NormRecurrent = Annotated[bool | None, _model("LN of W_h h; as in the paper if not given.")]
NormCell = Annotated[bool | None, _model("LN of c in tanh(LN(c)); as in the paper.")]
Joint = Annotated[bool | None, _model("LN of the sum W_h h + W_x x; as in the paper.")]
PerGate = Annotated[bool | None, _model("One LN a gate instead of stacked.")]
InitialGain = Annotated[float, _model("Initial gain of every norm.")]

Length = Annotated[int, _data("Characters a step of each stream (text).")]
Batch = Annotated[int, _data("Streams of text, or images, a step.")]
HeldOut = Annotated[float, _data("The last part of a text that is held out.")]
_WHOLE = "Its characters belong to the vocabulary too."
WholeVocabulary = Annotated[bool, typer.Option("--whole-vocabulary", help=_WHOLE, rich_help_panel="Data")]

Optimizer = Annotated[str, _optimizer(", ".join(OPTIMIZERS) + "; sgdm has momentum 0.9.")]
LearningRate = Annotated[float | None, _optimizer(f"Learning rate; if not given {_RATES}.")]
WeightDecay = Annotated[float, _optimizer("Of all parameters; L2 but for adamw.")]
Clip = Annotated[float, _optimizer("Largest norm of the gradient; 0 does not clip.")]

Out = Annotated[Path, _run("Folder for the log and the checkpoints.")]
Steps = Annotated[int, _run("Number of steps.")]
Seed = Annotated[int, _run("Of weights and order.")]
EvaluateEvery = Annotated[int, _run("Steps between evaluations; 0 never.", "--eval-every")]
CheckpointEvery = Annotated[int, _run("Steps between checkpoints; 0: at the end.")]
Resume = Annotated[bool, _run("Go on with the run in the folder; its options are kept.", "--resume")]
Overwrite = Annotated[bool, _run("Delete the run in the folder.", "--overwrite")]
Device = Annotated[str, _run("Device, such as cpu or cuda.")]
Parquet = Annotated[bool, _run("Write log.parquet too (package pyarrow).", "--parquet")]
TensorBoard = Annotated[bool, _run("Write for TensorBoard too.", "--tensorboard")]
