"""`normgeom fisher`."""

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from normgeom import loading
from normgeom.cli._options import DTYPES, pick, usable_device
from normgeom.geometry.summary import FisherSummary, fisher_summary
from normgeom.report import text_table


class Mode(StrEnum):
    """The mode a module is put in."""

    AS_FOUND = "as-found"
    EVAL = "eval"
    TRAIN = "train"


def fisher(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="An nn.Module, a pair (NormalizedGLM or function, params), or what takes nothing and "
            "returns one; FILE.py:NAME too.",
        ),
    ],
    data: Annotated[str, typer.Option(help="The batch: digits, or an .npy, .npz or .pt file.")],
    family: Annotated[
        str,
        typer.Option(help="Distribution of y, such as categorical or gaussian:0.5; a GLM has its own."),
    ] = "",
    cases: Annotated[int, typer.Option(help="How many cases, from the first.")] = 256,
    top: Annotated[int, typer.Option(help="How many eigenvalues.")] = 10,
    dtype: Annotated[str, typer.Option(help="float64 or float32; the model's own if not given.")] = "",
    device: Annotated[str, typer.Option(help="Device, such as cpu or cuda.")] = "cpu",
    mode: Annotated[Mode, typer.Option(help="Mode to put a module in.")] = Mode.AS_FOUND,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the exact Fisher matrix of a model on a batch: blocks, trace, top eigenvalues, null space."""
    kind = pick("--dtype", dtype, {"float64": 0, "float32": 0})[0] if dtype else ""
    place = usable_device(device)
    loaded = loading.load_model(model).to(DTYPES.get(kind), place).in_mode(mode)
    chosen = loading.family_for(loaded, family)
    batch = loading.cast(loading.load_data(data, cases=cases), loaded.dtype, place)
    loading.try_call(loaded, batch)
    _print_fisher(fisher_summary(loaded.model, loaded.params, batch, family=chosen, top=top), as_json)


def _print_fisher(summary: FisherSummary, as_json: bool) -> None:
    """Print a summary as text or JSON."""
    if as_json:
        print(json.dumps(summary.to_dict(), indent=1))
        return
    console = Console()
    before, after = summary.lines()[:2], summary.lines()[2:]
    for line in before:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(text_table(summary.HEADER, summary.cells(), console.width))
    for line in after:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
