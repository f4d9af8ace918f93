"""`normgeom check`."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console

import normgeom as ng
from normgeom.cli._options import DTYPES, pick
from normgeom.cli.table1 import NORMS
from normgeom.invariance.advice import EpsBreaking, advice, eps_breaking, scales_up_to_eps
from normgeom.invariance.table import InvarianceRow, InvarianceTable
from normgeom.loading_layers import load_layer
from normgeom.report import text_table
from normgeom.variants import VARIANTS, variant

COLUMNS = [transform.__name__ for transform in ng.TABLE_1]


def check(
    layer: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="A norm, an nn.Module, a function of (weight, data), or a class of one; FILE.py:NAME too.",
        ),
    ],
    units: Annotated[
        int | None, typer.Option(min=3, help="Units; a class that needs one number gets this.")
    ] = None,
    inputs: Annotated[int | None, typer.Option(min=2, help="Inputs of the points.")] = None,
    cases: Annotated[int | None, typer.Option(min=3, help="Cases of the points.")] = None,
    dtype: Annotated[str, typer.Option(help=f"Type of the numeric engine: {', '.join(DTYPES)}.")] = "float64",
    engines: Annotated[str, typer.Option(help="Engines, by commas; all that apply if not given.")] = "",
    claims: Annotated[
        str, typer.Option(help="The actions claimed, by commas, or none; exit code 1 if the row differs.")
    ] = "",
    against: Annotated[
        str, typer.Option(help="Show where the row differs from another layer's, such as layer_norm.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print one row of a LaTeX table.")] = False,
) -> None:
    """Check a layer of your own: its row of Table 1 with evidence, its law of eps, and what follows."""
    if as_json and latex:
        raise ValueError("--json and --latex are two formats; give one.")
    pick("--dtype", dtype, DTYPES)
    claimed = _claimed(claims)
    other = _other(against) if against else None
    subject = ng.as_layer(load_layer(layer, units=units))
    sizes: dict[str, Any] = {"units": units, "inputs": inputs, "cases": cases}
    asked = [name.strip() for name in engines.split(",")] if engines else None
    row = ng.check(subject, dtype=DTYPES[dtype], engines=asked, **sizes)
    broken = [eps_breaking(subject, transform, **sizes) for transform in scales_up_to_eps(row)]
    rows = [row] if other is None else [row, ng.check(other, engines=["numeric"])]
    wrong = [] if claimed is None else _wrong(row, claimed)
    if as_json:
        print(json.dumps(_as_dict(row, broken, rows[1:], wrong), indent=1, ensure_ascii=False))
    elif latex:
        print(_latex_row(row))
    else:
        _print(row, broken, rows[1:], wrong)
    if wrong:
        raise SystemExit(1)


def _claimed(claims: str) -> list[str] | None:
    """The actions claimed; None if nothing is said."""
    if claims in ("", "none"):
        return [] if claims else None
    return pick("--claims", claims, dict.fromkeys(COLUMNS))


def _other(name: str) -> Any:
    """The layer that a name means: one of the paper's, or one of the zoo."""
    plain = name.replace("_", " ").replace("-", " ").strip().lower()
    known = {f"{key} norm": norm for key, norm in NORMS.items() if key != "none"} | {"none": ng.NoNorm()}
    if plain in known:
        return ng.as_layer(known[plain], name=plain)
    for one in VARIANTS:
        if one.name.lower() == plain:
            return one
    try:
        return variant(plain)
    except KeyError as why:
        raise ValueError(f"--against: {why.args[0]} Of the paper: {', '.join(known)}.") from None


def _wrong(row: InvarianceRow, claimed: list[str]) -> list[str]:
    """What the claims say that the row does not, and the other way round."""
    lines = []
    for verdict in row:
        if verdict.transform in claimed and not verdict.holds:
            lines.append(f"{verdict.transform} is claimed, but the verdict is: {verdict.kind}.")
        if verdict.transform not in claimed and verdict.holds:
            lines.append(f"{verdict.transform} holds, but is not claimed: add it to --claims.")
    return lines


def _differences(row: InvarianceRow, other: InvarianceRow) -> list[str]:
    return [
        f"{mine.title}: {row.layer} {mine.label}, {other.layer} {theirs.label}"
        for mine, theirs in zip(row, other, strict=True)
        if mine.holds != theirs.holds
    ]


def _as_dict(
    row: InvarianceRow, broken: list[EpsBreaking], others: list[InvarianceRow], wrong: list[str]
) -> dict[str, Any]:
    return {
        "layer": row.layer,
        "cells": [verdict.as_row() for verdict in row],
        "eps": [vars(one) for one in broken],
        "remarks": list(row.remarks),
        "advice": advice(row),
        "differences": {other.layer: _differences(row, other) for other in others},
        "claims_that_fail": wrong,
    }


def _latex_row(row: InvarianceRow) -> str:
    """The line of this layer alone, for a table of booktabs."""
    lines = InvarianceTable((row,)).to_latex().splitlines()
    rule = next(k for k, line in enumerate(lines) if line.strip() == r"\midrule")
    return lines[rule + 1]


def _print(
    row: InvarianceRow, broken: list[EpsBreaking], others: list[InvarianceRow], wrong: list[str]
) -> None:
    """Print the row, the evidence, the law of eps, what follows, and what the claims miss."""
    console = Console()
    table = InvarianceTable((row, *others))
    console.print(text_table(table.header, table.cells(), console.width))
    say = lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True)  # noqa: E731
    for other in others:
        differences = _differences(row, other)
        say(f"Against {other.layer}: {'; '.join(differences) or 'the same row'}.\n")
    say("\n\n".join(str(verdict) for verdict in row))
    for remark in row.remarks:
        say(f"\nNote: {remark}.")
    if broken:
        say("\nWhat doubling changes with this layer's eps, where the summed inputs have the size")
        header = ["", *(f"{size:g}" for size in broken[0].sizes)]
        cells = [[one.transform, *(f"{change:.1e}" for change in one.changes)] for one in broken]
        console.print(text_table(header, cells, console.width))
    say("\nWhat follows:")
    for line in advice(row):
        say(f"* {line}")
    for line in wrong:
        Console(stderr=True).print(f"claim: {line}", highlight=False, markup=False, soft_wrap=True)
