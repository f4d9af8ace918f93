"""`normgeom table1`."""

from typing import Annotated

import torch
import typer
from rich.console import Console

import normgeom as ng
from normgeom.cli._options import DTYPES, Format, pick, usable_device
from normgeom.invariance.table import InvarianceTable
from normgeom.points import load_point
from normgeom.report import text_table

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
    chosen = pick("--norms", norms, NORMS)
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
        device=usable_device(device),
        weight=point.weight if point else None,
        data=point.data if point else None,
        engines=[e.strip() for e in engines.split(",")] if engines else (["numeric"] if point else None),
        generator=torch.Generator().manual_seed(seed),
    )
    _print(table, format, proofs, point.source if point else "")


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
