"""How every block of the Fisher matrix changes with the length of the weights, for each norm."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from analyses._glms import NORMS, problem, ratio
from analyses._run import Options
from normgeom.figures import draw_curvature, save_figure, style
from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.metric import length
from normgeom.geometry.scaling import scale, scaling_exponents
from normgeom.report import to_markdown, write_json, write_text

NAMES = {"w": "weight", "b": "bias", "g": "gain"}
BLOCKS = tuple("".join(pair) for pair in itertools.combinations_with_replacement("wbg", 2))
THEORY = {"ww": -2, "wb": -1, "wg": -1, "bb": 0, "bg": 0, "gg": 0}
PANELS = (("no norm", "Gaussian"), *((norm, "categorical") for norm in NORMS))
CAPTION = (
    "Size (Frobenius norm) of every block of the exact Fisher matrix as all weights are scaled by δ, "
    "against the length of W, on log axes. Points are measured, lines have the slope that theory gives: "
    "−2 for ww, −1 for wb and wg, 0 for bb, bg and gg. Without a norm there is a power law for Gaussian "
    "outputs only."
)


@dataclass(frozen=True)
class Findings:
    """Points of the curves, a law for every block, and the blocks when a single row is scaled."""

    points: list[dict[str, Any]]
    laws: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    lengths: list[dict[str, Any]]


def compute(options: Options) -> Findings:
    """Measure all blocks over two decades of the length of W."""
    points, laws, lengths = [], [], []
    for norm, family in PANELS:
        case = problem(norm, family, options, units=6, inputs=5, cases=40 if options.quick else 300)
        mine = curves(*case, deltas=np.geomspace(0.1, 10, 5 if options.quick else 13).tolist())
        name = {"norm": norm, "family": family}
        for law in fitted(mine, *case, exact=norm != "no norm" or family == "Gaussian", norm=norm):
            laws.append({**name, **law})
            points += [
                {**name, **point, "theory": law["theory"], "fitted": law["fitted"]}
                for point in mine
                if point["block"] == law["block"]
            ]
        lengths.append({**name, "ratio": _length_ratio(*case)})
    return Findings(points, laws, one_row(options), lengths)


def curves(model: Any, params: Any, data: Any, *, deltas: Sequence[float]) -> list[dict[str, Any]]:
    """Return the size of every block at every delta."""
    rows = []
    for delta in deltas:
        weight = scale(params["weight"], delta)
        fisher = closed_form_fisher(model, {**params, "weight": weight}, data)
        rows += [
            {"block": block, "delta": delta, "length": float(weight.norm()),
             "size": float(fisher[NAMES[block[0]], NAMES[block[1]]].norm())}
            for block in BLOCKS
            if {NAMES[letter] for letter in block} <= params.keys()
        ]  # fmt: skip
    return rows


def fitted(
    points: Sequence[dict[str, Any]], model: Any, params: Any, data: Any, *, exact: bool, norm: str
) -> list[dict[str, Any]]:
    """Return for every block the fitted slope, the slope of theory, and the factor when W doubles."""
    found = scaling_exponents(model, params, data)
    rows = []
    for block in dict.fromkeys(p["block"] for p in points):
        mine = [p for p in points if p["block"] == block]
        law = found[NAMES[block[0]], NAMES[block[1]]]
        lengths, sizes = (np.log([p[key] for p in mine]) for key in ("length", "size"))
        slope = np.polyfit(lengths, sizes, 1)[0]
        rows.append(
            {"block": block, "fitted": float(slope) if law.law == "power law" else None,
             "theory": None if not exact else 0 if norm == "no norm" else THEORY[block],
             "law": law.law, "doubled": law.ratios[0], "misfit": law.misfit}
        )  # fmt: skip
    return rows


def one_row(options: Options) -> list[dict[str, Any]]:
    """Return the scaling of the blocks of ww when only the first row of W is scaled."""
    rows = []
    for norm in list(NORMS)[1:]:
        case = problem(norm, "categorical", options, units=6, inputs=5, cases=40 if options.quick else 300)
        found = scaling_exponents(*case, row=0)
        for label, block in {
            "w₁w₁": ("weight[0]", "weight[0]"),
            "w₁wⱼ": ("weight[0]", "weight[others]"),
        }.items():
            law = found[block]
            rows.append({"norm": norm, "block": label, "law": law.law, "exponent": law.exponent})
    return rows


def _length_ratio(model: Any, params: Any, data: Any) -> float:
    """The length of one step in W at 2 W over that at W."""
    step = {"weight": params["weight"].flip(0, 1)}
    doubled = {**params, "weight": 2 * params["weight"]}
    return float(length(model, doubled, data, step) / length(model, params, data, step))


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw one panel for each model."""
    with style(height=4.3, axes__titlesize=7.5, xtick__labelsize=7, ytick__labelsize=7):
        figure, grid = plt.subplots(2, 3, sharex=True, sharey=True)
        for ax, (norm, family) in zip(grid.ravel(), PANELS, strict=True):
            mine = [row for row in rows if (row["norm"], row["family"]) == (norm, family)]
            draw_curvature(mine, ax)
            ax.set_title(f"{norm} ({family})")
        grid[0, 0].set_ylim(5e-5, 500)
        handles, labels = grid[1, 2].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            title="blocks of F: points measured, lines theory",
            title_fontsize=7,
            loc="outside upper center",
            ncols=len(labels),
            frameon=False,
            fontsize=7,
        )
        figure.supxlabel(r"length of the weights $\|W\|_F$", fontsize=8)
        figure.supylabel("Frobenius norm of a block of F", fontsize=8)
    return figure


def write(options: Options) -> list[Path]:
    """Write curvature_vs_norm.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    header = ["norm", "outputs", *(f"{block}: slope, factor at 2W" for block in BLOCKS)]
    cells = {(r["norm"], r["family"], r["block"]): _cell(r) for r in found.laws}
    table = [[*panel, *(cells.get((*panel, block), "–") for block in BLOCKS)] for panel in PANELS]
    write_json(
        f"{stem}.json",
        {"points": found.points, "laws": found.laws, "one row": found.rows, "lengths": found.lengths},
    )
    write_text(
        f"{stem}.md",
        f"# Curvature against the length of the weights\n\n{CAPTION}\n\n"
        f"{to_markdown(header, table)}\n\n{explain(found)}",
    )
    return [Path(f"{stem}.json"), Path(f"{stem}.md"), *save_figure(draw(found.points), stem)]


def _cell(law: dict[str, Any]) -> str:
    slope = "no power law" if law["fitted"] is None else ratio(round(law["fitted"], 3) + 0.0, 3)
    return f"{slope}, {ratio(law['doubled'], 3)}"


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    normed = [law for law in found.laws if law["norm"] != "no norm"]
    worst = max(
        abs(law["fitted"] - law["theory"]) if law["fitted"] is not None else math.inf for law in normed
    )
    ww = [law["doubled"] for law in normed if law["block"] == "ww"]
    cross = [law["doubled"] for law in normed if law["block"] in ("wb", "wg")]
    steps = [row["ratio"] for row in found.lengths if row["norm"] != "no norm"]
    single = [
        f"{norm}: "
        + ", ".join(
            f"{row['block']} {row['law'] if row['exponent'] is None else ratio(row['exponent'], 2)}"
            for row in found.rows
            if row["norm"] == norm
        )
        for norm in dict.fromkeys(row["norm"] for row in found.rows)
    ]
    return f"""\
* Fitted slopes are those of theory to {worst:.0e}, in {len(normed)} blocks of normalized models.
* **Differs from the paper.** Section 5.2.2 says that the curvature along wᵢ changes by a factor 1/2 when
  its length doubles. The ww block changes by 1/4 (measured {min(ww):.6f} to {max(ww):.6f}). The factor 1/2
  is right for wb and wg (measured {min(cross):.6f} to {max(cross):.6f}), and for the length ds of a fixed
  step in W (measured {min(steps):.6f} to {max(steps):.6f}).
* If only one row of W is scaled, the exponents of the blocks with its weights are: {"; ".join(single)}."""
