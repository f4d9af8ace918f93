"""What Table 1 does not print: negative scales, a bias before the norm, eps, frozen statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import normgeom as ng
from analyses._run import Options
from normgeom.figures import draw_eps_law, draw_invariances, save_figure, style
from normgeom.report import to_latex, to_markdown, write_json, write_text

NORMS: dict[str, Any] = {
    "batch norm": ng.BatchNorm(),
    "weight norm": ng.WeightNorm(),
    "layer norm": ng.LayerNorm(),
    "RMSNorm": ng.RMSNorm(),
}
COLUMNS: tuple[Any, ...] = (*ng.TABLE_1, ng.WeightVectorRecenter, ng.CaseRecenter)
SCALES = (ng.WeightMatrixRescale, ng.WeightVectorRescale, ng.DatasetRescale, ng.CaseRescale)
NEGATIVE: dict[Any, Any] = dict(zip(SCALES, ng.NEGATIVE_SCALES, strict=True))
VECTOR = torch.tensor([0.5, -1.0, 0.75])
EPS = (0.0, 1e-12, 1e-8, 1e-5, 1e-3)
CAPTION = (
    "The fine print of Table 1. A negative scale flips the sign of every output that the positive one leaves "
    "alone. A bias before the norm is harmless for batch norm, for layer norm if it is constant, and breaks "
    "the re-scalings otherwise. eps > 0 touches re-scaling only. Frozen statistics leave nothing. The last "
    "two columns are actions that the paper does not list."
)
CURVES = (
    "Deviation of the outputs under W → δW, relative to the largest output: points measured in float64, "
    "lines the exact law δ√(v+ε)/√(δ²v+ε). At eps = 0 only rounding is left."
)


@dataclass(frozen=True)
class Findings:
    """Cells of the table, and points of the curves."""

    cells: list[dict[str, Any]]
    curves: list[dict[str, Any]]


def compute(options: Options) -> Findings:
    """Check every condition of every norm, and measure the deviation over delta and eps."""
    cells = []
    engines = ["numeric"] if options.quick else None
    for name, norm in NORMS.items():
        for condition, layer, columns in _conditions(norm, options.generator()):
            actions = [column for column in columns.values() if column is not None]
            row = ng.check(
                layer, actions, engines=engines, device=options.device, generator=options.generator()
            )
            titles = [title for title, column in columns.items() if column is not None]
            about = {"norm": name, "condition": condition, "layer": f"{name}, {condition}"}
            cells += [v.as_row() | about | {"title": title} for v, title in zip(row, titles, strict=True)]
    return Findings(cells, curves(options))


def _conditions(norm: Any, generator: torch.Generator) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return (condition, layer, action by column) for one norm; a column without an action is None."""
    usual = {column.title: column for column in COLUMNS}
    negative = {column.title: NEGATIVE.get(column) for column in COLUMNS}
    out: list[tuple[str, Any, dict[str, Any]]] = [
        ("as printed", norm, usual),
        ("δ < 0", norm, negative),
        ("constant bias before", ng.as_layer(norm, bias_before=0.75), usual),
        ("vector bias before", ng.as_layer(norm, bias_before=VECTOR), usual),
        ("eps = 1e-5", ng.as_layer(norm, eps=1e-5), usual),
    ]
    if isinstance(norm, ng.BatchNorm):
        shapes = ((3, 3), (8, 3))
        weight, data = (torch.randint(-3, 4, s, generator=generator).double() for s in shapes)
        out.append(("frozen statistics", norm.freeze(weight, data), usual))
    return out


def curves(options: Options) -> list[dict[str, Any]]:
    """Measure the deviation under `W -> delta W` over delta and eps, and evaluate the law."""
    generator = options.generator()
    weight, data = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(options.device)
        for shape in ((16, 8), (32, 8))
    )
    deltas = np.geomspace(1e-4, 1e4, 9 if options.quick else 33) * 1.1
    rows = []
    for name, norm in NORMS.items():
        variance = norm.statistics(weight, data)[1]
        for eps in EPS:
            z = ng.normalize(norm, weight, data, eps=eps)
            for delta in deltas:
                law = (delta * torch.sqrt((variance + eps) / (delta**2 * variance + eps)) - 1) * z
                measured = ng.invariance_error(
                    ng.as_layer(norm, eps=eps), ng.WeightMatrixRescale(float(delta)), weight, data
                )
                rows.append(
                    {"norm": name, "eps": eps, "delta": float(delta), "measured": measured,
                     "law": float(law.abs().max() / z.abs().max())}
                )  # fmt: skip
    return rows


def draw_table(cells: Sequence[dict[str, Any]]) -> Figure:
    """Draw the table as a picture."""
    with style(height=6.6, xtick__labelsize=5.3, ytick__labelsize=6.0):
        figure, ax = plt.subplots()
        draw_invariances(cells, ax, titles=[c.title for c in COLUMNS], group="norm")
    return figure


def draw_curves(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw one panel a norm."""
    with style(height=3.4):
        figure, grid = plt.subplots(2, 2, sharex=True, sharey=True)
        for ax, name in zip(grid.ravel(), NORMS, strict=True):
            draw_eps_law([row for row in rows if row["norm"] == name], ax)
            ax.set_title(name)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        handles, labels = [*handles, Line2D([], [], color="black", lw=1.0)], [*labels, "exact law"]
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize="small")
        figure.supxlabel(r"scale $\delta$ of the weights", fontsize="medium")
        figure.supylabel("largest change over largest output", fontsize="medium")
    return figure


def write(options: Options) -> list[Path]:
    """Write fine_print.{json,md,tex,pdf,png} and fine_print_eps.{pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    titles = [column.title for column in COLUMNS]
    labels = {(c["norm"], c["condition"], c["title"]): _label(c) for c in found.cells}
    pairs = list(dict.fromkeys((c["norm"], c["condition"]) for c in found.cells))
    table = [[*pair, *(labels.get((*pair, title), "–") for title in titles)] for pair in pairs]
    header = ["norm", "condition", *titles]
    worst = max(abs(r["measured"] - r["law"]) for r in found.curves)
    text = (
        f"# The fine print of Table 1\n\n{CAPTION}\n\n{to_markdown(header, table)}\n\n## eps\n\n{CURVES}\n\n"
        f"Largest difference between measured and law over {len(found.curves)} points: {worst:.1e}."
    )
    write_json(f"{stem}.json", {"cells": found.cells, "curves": found.curves})
    write_text(f"{stem}.md", text)
    write_text(f"{stem}.tex", to_latex(header, table, caption=CAPTION, label="tab:fine-print"))
    return [
        *(Path(f"{stem}.{kind}") for kind in ("json", "md", "tex")),
        *save_figure(draw_table(found.cells), stem),
        *save_figure(draw_curves(found.curves), f"{stem}_eps"),
    ]


def _label(cell: dict[str, Any]) -> str:
    return ", ".join(filter(None, [cell["label"], cell["scaling"]]))
