"""Table 1 measured at real inputs: digits with trained weights, and digits with every pixel as a unit.

Gaussian weights and data flatter a check: their statistics are never degenerate. Here some pixels are
constant and others nearly so, which is where eps and rounding show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

import normgeom as ng
from analyses._run import Options
from normgeom.figures import draw_invariances, save_figure, style
from normgeom.points import digits
from normgeom.report import to_latex, to_markdown, write_json, write_text

NORMS = {"batch": ng.BatchNorm(), "weight": ng.WeightNorm(), "layer": ng.LayerNorm(), "RMS": ng.RMSNorm()}
CAPTION = (
    "Table 1 measured at scikit-learn's digits, with the hidden weights of a trained network and with every "
    "pixel as a unit (W = I), at eps = 0 and eps = 1e-5. The number is the largest change of an output over "
    "the largest output."
)


@dataclass(frozen=True)
class Findings:
    """One dict a cell, and what the inputs are like."""

    rows: list[dict[str, Any]]
    facts: dict[str, Any]


def compute(options: Options) -> Findings:
    """Measure every cell at both weights, with and without eps."""
    point = digits(seed=options.seed)
    data = point.data[:300] if options.quick else point.data
    weights = {"trained": point.weight, "pixels": torch.eye(data.shape[1], dtype=data.dtype)}
    rows = []
    for weights_name, weight in weights.items():
        for eps in (0.0, 1e-5):
            layers = {f"{name}, {weights_name}, eps {eps:g}": norm for name, norm in NORMS.items()}
            table = ng.invariance_table(
                layers, weight=weight, data=data, eps=eps, engines=["numeric"], device=options.device,
                generator=options.generator(),
            )  # fmt: skip
            rows += [
                record | {"weights": weights_name, "eps": eps, "group": f"{weights_name} {eps:g}"}
                for record in table.records()
            ]
    return Findings(rows, {"source": point.source, **_facts(weights, data)})


def _facts(weights: dict[str, torch.Tensor], data: torch.Tensor) -> dict[str, Any]:
    """Return how degenerate the statistics are."""
    facts: dict[str, Any] = {"constant pixels": int((data.std(0, correction=0) == 0).sum())}
    for name, weight in weights.items():
        variance = (data @ weight.T).var(0, correction=0)
        positive = variance[variance > 0]
        facts[f"{name}: smallest and largest variance of a unit"] = [
            float(positive.min()),
            float(positive.max()),
        ]
        facts[f"{name}: constant units"] = int((variance == 0).sum())
    return facts


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw all rows as one picture."""
    with style(height=5.6, xtick__labelsize=6.5, ytick__labelsize=6.5):
        figure, ax = plt.subplots()
        draw_invariances(rows, ax, group="group")
    return figure


def explain(found: Findings) -> str:
    """Say what differs from Table 1, with the figures."""
    facts = found.facts
    low, high = facts["pixels: smallest and largest variance of a unit"]
    trained_low, trained_high = facts["trained: smallest and largest variance of a unit"]
    errors = {(r["layer"], r["title"]): r["error"] for r in found.rows}
    pixels, trained = (
        errors[f"batch, {weights}, eps 1e-05", "weight matrix re-scaling"]
        for weights in ("pixels", "trained")
    )
    undecided = sorted({r["layer"] for r in found.rows if r["kind"] == "undecided"})
    exact = max(r["error"] for r in found.rows if r["kind"] == "invariant")
    return f"""\
Inputs: {facts["source"]}.

What changes against Table 1, and why:

* **Constant pixels.** {facts["constant pixels"]} of 64 pixels never change. As units of their own (W = I)
  they have variance 0, and batch norm without eps is 0/0 there: *undecided*
  ({", ".join(undecided) or "no row"}), which no Gaussian input would show. With trained weights
  {facts["trained: constant units"]} units are constant.
* **Nearly constant pixels.** The variances of the other pixels run from {low:.2g} to {high:.2g}. Where one is
  not large against eps = 1e-5, re-scaling the weights moves batch norm by {pixels:.2g} of the largest output,
  as the law of eps says to rounding: a cell that the paper's table calls invariant is far from it. With
  trained weights (variances {trained_low:.2g} to {trained_high:.2g}) it moves by {trained:.2g}.
* **Everything else is as printed**; the largest deviation of a cell that is invariant is {exact:.1e}. Layer
  norm and RMSNorm do not notice constant pixels, since their statistics run over the units of one case, and
  weight norm's statistics do not see the data."""


def write(options: Options) -> list[Path]:
    """Write table1_digits.{json,md,tex,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    titles = list(dict.fromkeys(row["title"] for row in found.rows))
    header = ["norm", "weights", "eps", *titles]
    layers = list(dict.fromkeys((r["layer"], r["weights"], r["eps"]) for r in found.rows))
    cells = {(row["layer"], row["title"]): _cell(row) for row in found.rows}
    table = [
        [layer.split(",")[0], weights, f"{eps:g}", *(cells[layer, t] for t in titles)]
        for layer, weights, eps in layers
    ]
    reasons = sorted(
        {f"* {row['layer']}: {row['reason']}" for row in found.rows if row["kind"] == "undecided"}
    )
    text = [
        f"# Table 1 at real inputs\n\n{CAPTION}",
        to_markdown(header, table),
        explain(found),
        *reasons[:4],
    ]
    write_json(f"{stem}.json", {"facts": found.facts, "rows": found.rows})
    write_text(f"{stem}.md", "\n\n".join(text))
    write_text(f"{stem}.tex", to_latex(header, table, caption=CAPTION, label="tab:table1-digits"))
    return [*(Path(f"{stem}.{kind}") for kind in ("json", "md", "tex")), *save_figure(draw(found.rows), stem)]


def _cell(row: dict[str, Any]) -> str:
    return row["label"] if row["error"] is None else f"{row['label']} ({row['error']:.1g})"
