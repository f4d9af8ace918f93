"""Eq. 13 as printed against the exact Fisher matrix, for layer norm and RMSNorm, over the number of units."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from torch import Tensor

from analyses._glms import problem, small
from analyses._run import Options
from normgeom.figures import draw_eq13_gap, draw_null_curvature, save_figure, style
from normgeom.geometry.closed_form import closed_form_fisher, eq13_as_printed
from normgeom.report import to_markdown, write_json, write_text

UNITS = (3, 4, 6, 8, 12, 16, 32, 64, 128, 256, 512)
LOST = {"layer norm": 2, "RMSNorm": 1}
INPUTS, CASES = 4, 32
CAPTION = (
    "Eq. 13 as the paper prints it against the exact Fisher matrix, Gaussian outputs, gain 1, 4 inputs, "
    "32 cases. Left: relative Frobenius error of the weights' part. Right: curvature along directions "
    "that leave every output unchanged, W (scaling) and 1γᵀ (one row added to all), over the mean "
    "eigenvalue of the weights' part as printed: the exact curvature is zero to rounding, the printed one "
    "is not."
)


def compute(options: Options) -> list[dict[str, Any]]:
    """Measure the error and the curvature along the null directions for every number of units."""
    return [
        row
        for norm in LOST
        for units in ((3, 8, 32) if options.quick else UNITS)
        for row in compare(norm, units, options)
    ]


def compare(norm: str, units: int, options: Options) -> list[dict[str, Any]]:
    """Return one dict for each null direction of one norm and size."""
    model, params, data = problem(norm, "Gaussian", options, units=units, inputs=INPUTS, cases=CASES)
    params["gain"] = params["gain"].new_ones(units)
    one = _error(*(how(model, params, data[:1])["weight"] for how in (closed_form_fisher, eq13_as_printed)))
    exact, printed = (how(model, params, data) for how in (closed_form_fisher, eq13_as_printed))
    lost = LOST[norm]
    found = {
        "norm": norm, "units": units, "error": _error(exact["weight"], printed["weight"]), "one case": one,
        "law": (lost / (units - lost)) ** 0.5, "law name": rf"$\sqrt{{{lost}/(H-{lost})}}$",
    }  # fmt: skip
    mean = float(printed["weight"].trace()) / params["weight"].numel()
    rows = []
    for name, direction in null_directions(norm, params["weight"]).items():
        step = {n: p * 0 for n, p in params.items()} | {"weight": direction / direction.norm()}
        values = (float(matrix.quadratic(step)) / mean for matrix in (exact, printed))
        rows.append(found | {"direction": name} | dict(zip(("exact", "printed"), values, strict=True)))
    return rows


def null_directions(norm: str, weight: Tensor) -> dict[str, Tensor]:
    """Return directions of the weight that leave the outputs unchanged: W, and for layer norm 1 gamma^T."""
    if norm != "layer norm":
        return {"W": weight}
    return {"W": weight, "1γᵀ": weight[:1].expand_as(weight)}


def _error(exact: Tensor, printed: Tensor) -> float:
    return float((printed - exact).norm() / exact.norm())


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the error, and the curvature along the null directions."""
    with style(height=3.3, legend__fontsize=6, xtick__labelsize=7, ytick__labelsize=7, axes__labelsize=7.5):
        figure, (left, right) = plt.subplots(1, 2)
        draw_eq13_gap([row for row in rows if row["direction"] == "W"], left)
        draw_null_curvature(rows, right)
        left.set_ylabel("error of eq. 13, ww part, relative")
        right.set_ylabel("curvature / mean printed eigenvalue")
        right.set_title("along null directions", size=8)
        left.set_title("printed against exact", size=8)
        right.set_ylim(1e-19, 1e4)
        left.set_ylim(0.015, 2)
        left.yaxis.set_minor_locator(NullLocator())
        left.set_yticks([0.02, 0.05, 0.1, 0.2, 0.5, 1, 2])
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for ax in (left, right):
            ax.set_xlabel("units $H$")
            ax.set_xticks([4, 16, 64, 256], ["4", "16", "64", "256"])
            ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.45, -0.2))
    return figure


def write(options: Options) -> list[Path]:
    """Write eq13_gap.{json,md,pdf,png}."""
    stem, rows = options.stem(__file__), compute(options)
    header = ["norm", "units", "error", "error, one case", "law", "direction", "printed", "exact"]
    table = [
        [r["norm"], str(r["units"]), f"{r['error']:.3f}", f"{r['one case']:.3f}", f"{r['law']:.3f}",
         r["direction"], f"{r['printed']:.3f}", f"{abs(r['exact']):.0e}"]
        for r in rows
    ]  # fmt: skip
    write_json(f"{stem}.json", rows)
    write_text(
        f"{stem}.md",
        f"# Eq. 13 as printed\n\n{CAPTION}\n\n{to_markdown(header, table)}\n\n{explain(rows)}",
    )
    return [Path(f"{stem}.json"), Path(f"{stem}.md"), *save_figure(draw(rows), stem)]


def explain(rows: Sequence[dict[str, Any]]) -> str:
    """Say what the numbers show."""
    layer = {row["units"]: row for row in rows if row["norm"] == "layer norm"}
    rms = {row["units"]: row for row in rows if row["norm"] == "RMSNorm"}
    first, last = min(layer), max(layer)
    nulls = [row for row in rows if row["units"] >= 8]
    zero = max(abs(row["exact"]) for row in rows)
    return f"""\
* **Differs from the paper.** For layer norm, eq. 13 as printed misses the exact ww part by
  {100 * layer[first]["error"]:.0f} % at {first} units and {100 * layer[last]["error"]:.1f} % at {last}
  units. It keeps only the diagonal of the projection I − 11ᵀ/H − zzᵀ/H that joins the units.
* √(2/(H−2)) is the limit of the error in F of one case (at {last} units measured
  {layer[last]["one case"]:.4f}, law {layer[last]["law"]:.4f}). In the mean over cases the zzᵀ part partly
  averages out, and the error is smaller: {layer[last]["error"] / layer[last]["law"]:.2f} of the law at
  {last} units. At few units the law is too large: at {first} units it says {layer[first]["law"]:.2f},
  measured {layer[first]["one case"]:.2f} for one case.
* RMSNorm, which the paper does not treat, has only the zzᵀ part. Eq. 13 used for it misses by
  {100 * rms[first]["error"]:.0f} % at {first} units and {100 * rms[last]["error"]:.1f} % at {last}; the law
  of one case is √(1/(H−1)) (measured {rms[last]["one case"]:.4f}, law {rms[last]["law"]:.4f}).
* Along W and 1γᵀ the exact curvature is at most {small(zero)} of the mean eigenvalue. As printed it is
  between {min(r["printed"] for r in nulls):.2f} and {max(r["printed"] for r in nulls):.2f} of it from 8
  units on and {min(r["printed"] for r in rows if r["units"] == last):.2f} or more at {last}: it does not
  fall with H. The error of the whole matrix vanishes, that along the symmetries does not."""
