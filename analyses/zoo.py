"""The zoo: every layer of `normgeom.variants` with its row of Table 1, and a picture by pattern."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import normgeom as ng
from analyses._run import Options
from analyses._zoo_text import latex, markdown
from normgeom.figures import draw_zoo, save_figure, style, zoo_key
from normgeom.invariance import Verdict
from normgeom.invariance.settling import settle
from normgeom.report import write_json, write_text
from normgeom.variants import COLUMNS, VARIANTS, Variant
from normgeom.variants.measure import eps_law_error, point, symmetry_error, unmet

ROUNDING = 1e-12


def compute(options: Options) -> list[dict[str, Any]]:
    """Check every cell of every layer, and measure its symmetries, its law of eps and its gradient."""
    return [record(v, options) for v in VARIANTS]


def record(v: Variant, options: Options) -> dict[str, Any]:
    """Return all that is found about one layer, as plain values."""
    draw = options.generator()
    weight, data = (array.to(options.device) for array in point(v, generator=draw))
    row, bare = verdicts(v, options), v.with_eps(0.0)
    actions: tuple[Any, ...] = ng.TABLE_1
    elements = [action.sample(weight, data, generator=draw) for action in actions]
    still = [ng.gradient_identity_error(bare, e, weight, data, generator=draw) < ROUNDING for e in elements]
    degrees = [
        None if verdict.holds else ng.scaling_degree(bare, e, weight, data)
        for verdict, e in zip(row, elements, strict=True)
    ]
    pairs = list(zip(COLUMNS, row, still, strict=True))
    return {
        "layer": v.name,
        **{name: getattr(v, name) for name in ("family", "formula", "latex", "source", "mode", "eps")},
        "form": "conv" if v.convolution.kernel else "dense",
        "cells": [cell(*of) for of in zip(row, degrees, strict=True)],
        "unmet": unmet(v, row) + _wrong_degrees(v, degrees) + ([] if options.quick else _seen_once(row)),
        "eps_power": v.eps_power,
        "eps_law_error": eps_law_error(v, weight, data) if v.eps_power else None,
        "joint": [
            {"text": s.text, "latex": s.latex, "error": symmetry_error(v, s, weight, data)}
            for s in v.symmetries
        ],
        "gradient_only": [name for name, verdict, flat in pairs if flat and not verdict.holds],
        "gradient_broken": [name for name, verdict, flat in pairs if verdict.holds and not flat],
    }


def verdicts(v: Variant, options: Options) -> list[Verdict]:
    """Return the verdicts of all engines that see the layer or its statistics, settled cell by cell."""
    if options.quick:
        return list(ng.check(v, engines=["numeric"], device=options.device))
    rows = [list(ng.check(v, device=options.device))]
    if v.norm is not None:
        rows.append(list(ng.check(ng.as_layer(v.norm, eps=v.eps), engines=["exact", "symbolic"])))
    return [settle(said) for said in zip(*rows, strict=True)]


def cell(verdict: Verdict, degree: float | None) -> dict[str, Any]:
    """Return one cell as plain values."""
    kept = ("title", "transform", "error", "engines", "witness", "proof", "reason")
    row = verdict.as_row()
    return {"kind": str(verdict.kind), "degree": None if degree is None else round(degree, 6)} | {
        name: row[name] for name in kept
    }


def _seen_once(row: Sequence[Verdict]) -> list[str]:
    """Name the cells that fewer than two engines decided."""
    return [f"{v.transform}: decided by {len(v.engines)} engine alone" for v in row if len(v.engines) < 2]


def _wrong_degrees(v: Variant, degrees: Sequence[float | None]) -> list[str]:
    """Say which measured degrees are not the claimed ones."""
    return [
        f"{column}: claimed degree {claim.degree}, measured {degree}"
        for column, claim, degree in zip(COLUMNS, v.claims, degrees, strict=True)
        if (claim.degree is None) != (degree is None) or (degree and abs(degree - (claim.degree or 0)) > 1e-6)
    ]


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the clustered picture with its key."""
    with style(height=8.6, xtick__labelsize=5.0, ytick__labelsize=6.0, axes__labelsize=6.0):
        figure, (ax, tree) = plt.subplots(1, 2, width_ratios=[8, 1])
        draw_zoo(rows, ax, tree)
        figure.legend(handles=zoo_key(), loc="outside lower center", ncols=3, frameon=False, fontsize=6.0)
    return figure


def write(options: Options) -> list[Path]:
    """Write zoo.{json,md,tex,pdf,png}.

    Raises:
        RuntimeError: if a claim of the zoo is not met.
    """
    stem, rows = options.stem(__file__), compute(options)
    if wrong := [f"{row['layer']}: {said}" for row in rows for said in row["unmet"]]:
        raise RuntimeError("claims of the zoo are not met:\n" + "\n".join(wrong))
    write_json(f"{stem}.json", rows)
    write_text(f"{stem}.md", markdown(rows))
    write_text(f"{stem}.tex", latex(rows))
    return [*(Path(f"{stem}.{kind}") for kind in ("json", "md", "tex")), *save_figure(draw(rows), stem)]
