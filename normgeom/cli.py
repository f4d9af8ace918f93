"""The command line: argument parsing only."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.markup import escape

import normgeom as ng
from normgeom import loading
from normgeom.geometry.summary import FisherSummary, fisher_summary
from normgeom.invariance.table import InvarianceTable
from normgeom.points import load_point
from normgeom.report import text_table

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The invariances and the geometry of neural-network normalization.",
)

NORMS = {
    "batch": ng.BatchNorm(),
    "weight": ng.WeightNorm(),
    "layer": ng.LayerNorm(),
    "rms": ng.RMSNorm(),
    "input-layer": ng.InputLayerNorm(),
    "none": ng.NoNorm(),
}
ROW_NAMES = {"batch": "batch norm", "weight": "weight norm", "layer": "layer norm", "rms": "RMSNorm",
             "input-layer": "W LN(x)", "none": "no norm"}  # fmt: skip
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Mode(StrEnum):
    """The mode a module is put in."""

    AS_FOUND = "as-found"
    EVAL = "eval"
    TRAIN = "train"


class Format(StrEnum):
    """How a table is printed."""

    TEXT = "text"
    MD = "md"
    LATEX = "latex"
    JSON = "json"


@app.callback()
def _root() -> None:
    """Options before the command, of which there are none."""


@app.command()
def table1(
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.TEXT,
    proofs: Annotated[
        bool, typer.Option("--proofs", help="Print the proof or the witness of each cell.")
    ] = False,
    norms: Annotated[str, typer.Option(help=f"Rows, from: {', '.join(NORMS)}.")] = "batch,weight,layer",
    dtype: Annotated[str, typer.Option(help=f"Type of the numeric engine: {', '.join(DTYPES)}.")] = "float64",
    eps: Annotated[float, typer.Option(help="Added to every variance; the paper has 0.")] = 0.0,
    device: Annotated[str, typer.Option(help="Device of the numeric engine, such as cpu or cuda.")] = "cpu",
    data: Annotated[
        str, typer.Option(help="Measure at real weights and data: digits, or an .npz with weight and data.")
    ] = "",
    engines: Annotated[
        str, typer.Option(help="Engines, from: numeric, exact, symbolic; all if not given.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of every draw.")] = 0,
) -> None:
    """Regenerate Table 1 of "Layer Normalization": which transforms leave which norm unchanged."""
    chosen = _pick("--norms", norms, NORMS)
    if dtype not in DTYPES:
        raise ValueError(f"--dtype must be one of {', '.join(DTYPES)}; got {dtype!r}.")
    if data and engines not in ("", "numeric"):
        raise ValueError(f"--data is measured by the numeric engine alone; got --engines {engines}.")
    if proofs and format in (Format.JSON, Format.LATEX):
        raise ValueError(
            f"--proofs goes with --format text or md; got {format}. JSON holds the evidence already."
        )
    point = load_point(data, seed=seed) if data else None
    table = ng.invariance_table(
        {ROW_NAMES[name]: NORMS[name] for name in chosen},
        dtype=DTYPES[dtype],
        eps=eps,
        device=_device(device),
        weight=point.weight if point else None,
        data=point.data if point else None,
        engines=[e.strip() for e in engines.split(",")] if engines else (["numeric"] if point else None),
        generator=torch.Generator().manual_seed(seed),
    )
    _print(table, format, proofs, point.source if point else "")


@app.command()
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
    kind = _pick("--dtype", dtype, {"float64": 0, "float32": 0})[0] if dtype else ""
    place = _device(device)
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


def _print(table: InvarianceTable, format: Format, proofs: bool, source: str) -> None:
    """Print a table in the format asked for, and the evidence if asked for."""
    plain = {Format.MD: table.to_markdown, Format.LATEX: table.to_latex, Format.JSON: table.to_json}
    if format in plain:
        print(plain[format]())
    else:
        console = Console()
        if source:
            console.print(f"Measured at {source}.", highlight=False, markup=False)
        console.print(text_table(table.header, table.cells(), console.width))
        for verdict in (v for row in table for v in row if v.kind is ng.Kind.UNDECIDED):
            console.print(
                f"? {verdict.layer}, {verdict.title}: {verdict.reason}", highlight=False, markup=False
            )
    if proofs:
        print("\n" + table.proofs())


def _pick(option: str, text: str, known: Mapping[str, object]) -> list[str]:
    """Split a list of names and raise an error for an unknown one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or any(name not in known for name in names):
        raise ValueError(f"{option} must be among {', '.join(known)}; got {text!r}.")
    return names


def _device(name: str) -> torch.device:
    """Return a device that this torch can use."""
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as why:
        raise ValueError(
            f"--device must be one this torch can use; got {name!r} ({str(why).splitlines()[0]})."
        ) from why
    return device


def main() -> None:
    """Run the command line; a bad argument is one line on standard error and exit code 2."""
    try:
        app()
    except (ValueError, TypeError, OSError) as why:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(why))}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
