"""The exact Fisher matrix of one GLM under each norm, block by block, and eq. 13 as the paper prints it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from analyses._glms import NORMS, problem, small
from analyses._run import Options
from normgeom.figures import draw_fisher_blocks, save_figure, style
from normgeom.geometry.closed_form import closed_form_fisher, eq13_as_printed
from normgeom.geometry.matrix import FisherMatrix
from normgeom.geometry.null_space import null_space
from normgeom.report import to_markdown, write_json, write_text

PRINTED = "layer norm, eq. 13 printed"
UNITS, INPUTS = 3, 3
CAPTION = (
    "The exact Fisher matrix of a GLM with 3 units, 3 inputs and Bernoulli outputs, under each norm, at "
    "the same weights and data, in the order of the paper's eq. 13: w₁ b₁ g₁ w₂ … . Entries with a minus "
    "sign are negative. The outputs are independent given the input, so a block between units that is not "
    "zero comes from the norm: layer norm and RMSNorm couple the units, which eq. 13 as printed leaves "
    "out."
)


@dataclass(frozen=True)
class Findings:
    """One dict a row of a matrix, and one a matrix with its summary."""

    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]


def compute(options: Options) -> Findings:
    """Form every matrix; independent and categorical outputs are summarized, the former are drawn."""
    rows, summary = [], []
    for family in ("Bernoulli", "categorical"):
        for name in (*NORMS, PRINTED):
            norm, how = ("layer norm", eq13_as_printed) if name == PRINTED else (name, closed_form_fisher)
            case = problem(
                norm, family, options, units=UNITS, inputs=INPUTS, cases=40 if options.quick else 400
            )
            matrix = how(*case)
            summary.append({"norm": name, "family": family, **summarize(matrix)})
            if family == "Bernoulli":
                rows += [{"norm": name, **row} for row in matrix_rows(matrix)]
    return Findings(rows, summary)


def matrix_rows(fisher: FisherMatrix) -> list[dict[str, Any]]:
    """Return one dict a row of the matrix: the letter and unit of its parameter, and its values."""
    return [
        {"letter": name[0], "unit": index[0] + 1, "values": values}
        for (name, index), values in zip(fisher.order, fisher.matrix.tolist(), strict=True)
    ]


def summarize(fisher: FisherMatrix) -> dict[str, Any]:
    """Return size, rank, null dimension, and the share of the matrix that couples different units."""
    units = fisher.matrix.new_tensor([index[0] for _, index in fisher.order])
    between = fisher.matrix * (units[:, None] != units)
    found = null_space(fisher)
    return {
        "parameters": len(fisher.order),
        "rank": found.rank,
        "nullity": found.nullity,
        "between units": float(between.norm() / fisher.matrix.norm()),
    }


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw a heat map for each norm, on one colour scale."""
    names = list(dict.fromkeys(row["norm"] for row in rows))
    limit = max(abs(v) for row in rows for v in row["values"])
    with style(height=4.6, xtick__labelsize=5.5, ytick__labelsize=5.5, axes__titlesize=7.5):
        figure, grid = plt.subplots(2, 3)
        for ax, name in zip(grid.ravel(), names, strict=True):
            draw_fisher_blocks([row for row in rows if row["norm"] == name], ax, limit=limit)
            ax.set_title(name)
        bar = figure.colorbar(
            grid[0, 0].images[0], ax=grid.ravel().tolist(), location="bottom", aspect=45, pad=0.03
        )
        bar.set_label("entry of F (nats; log scale on both sides of 0; − marks negative entries)", size=7)
        bar.ax.minorticks_off()
    return figure


def write(options: Options) -> list[Path]:
    """Write fisher_blocks.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    header = ["norm", "outputs", "parameters", "rank", "null dimension", "share between units"]
    table = [
        [s["norm"], s["family"], *(str(s[key]) for key in ("parameters", "rank", "nullity")),
         small(s["between units"])]
        for s in found.summary
    ]  # fmt: skip
    write_json(f"{stem}.json", {"rows": found.rows, "summary": found.summary})
    write_text(f"{stem}.md", "\n\n".join(
        ["# The Fisher matrix, block by block", CAPTION, to_markdown(header, table), explain(found)]
    ))  # fmt: skip
    return [Path(f"{stem}.json"), Path(f"{stem}.md"), *save_figure(draw(found.rows), stem)]


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    of = {s["norm"]: s for s in found.summary if s["family"] == "Bernoulli"}
    exact, printed = of["layer norm"], of[PRINTED]
    return f"""\
The share between units is the Frobenius norm of all blocks between different units over that of F.

* With independent outputs it is {small(of["weight norm"]["between units"])} for weight norm and
  {small(of["batch norm"]["between units"])} for batch norm, but {exact["between units"]:.2f} for layer norm
  and {of["RMSNorm"]["between units"]:.2f} for RMSNorm: statistics over the units couple them. With
  categorical outputs all norms couple, through the covariance of y.
* **Differs from the paper.** Eq. 13 as printed has share {small(printed["between units"])} for layer norm,
  and null dimension {printed["nullity"]} where the exact matrix has {exact["nullity"]} (= inputs + 1:
  scaling W, and adding a row to all of its rows).
* The null dimensions with Bernoulli outputs are those of Table 1's groups: {of["no norm"]["nullity"]}
  without a norm, {of["weight norm"]["nullity"]} for weight norm and {of["batch norm"]["nullity"]} for batch
  norm (one length a unit), {exact["nullity"]} for layer norm, {of["RMSNorm"]["nullity"]} for RMSNorm.
  Categorical outputs add the directions that shift all logits together."""
