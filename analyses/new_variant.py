"""A worked example: a norm invented here, tested, proved, discovered and drawn beside the paper's.

Gini norm divides the centred summed inputs by their mean absolute difference between units,

    z_i = (a_i - mean a) / (mean_jk |a_j - a_k| + eps),

a scale on which one unit far from the others weighs less than on the standard deviation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

import normgeom as ng
from analyses._run import Options
from normgeom.figures import COLOURS, draw_invariances, save_figure, style
from normgeom.invariance.advice import advice, eps_breaking
from normgeom.report import write_json, write_text

UNITS = 8
CLAIMS = ("WeightMatrixRescale", "WeightMatrixRecenter", "DatasetRescale", "CaseRescale")


class GiniNorm(nn.Module):
    """Summed inputs (cases, units), centred and over their mean absolute difference between units."""

    def __init__(self, units: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(units)), nn.Parameter(torch.zeros(units))
        self.eps = eps

    def forward(self, summed: torch.Tensor) -> torch.Tensor:
        """Return `gain * z + bias`."""
        apart = (summed[:, :, None] - summed[:, None, :]).abs().mean((1, 2))
        centred = summed - summed.mean(1, keepdim=True)
        return self.gain * centred / (apart[:, None] + self.eps) + self.bias


@dataclass(frozen=True)
class Findings:
    """Rows of the two panels, and what is said beside them."""

    cells: list[dict[str, Any]]
    outliers: list[dict[str, Any]]
    facts: dict[str, Any]


def compute(options: Options) -> Findings:
    """Check the row, attack the claims, find all symmetries, and compare with layer norm at an outlier."""
    layer = GiniNorm(UNITS)
    table = ng.invariance_table(
        {"Gini norm": layer, "layer norm": nn.LayerNorm(UNITS), "RMSNorm": nn.RMSNorm(UNITS, eps=1e-5)},
        units=UNITS,
        generator=options.generator(),
    )
    row = table["Gini norm"]
    found = ng.discover(ng.as_layer(GiniNorm(4), name="Gini norm"), units=4, generator=options.generator())
    facts: dict[str, Any] = {
        "evidence": [str(verdict) for verdict in row],
        "advice": advice(row),
        "checks": attacked(layer, examples=3 if options.quick else 25),
        "symmetries": str(found),
        "dimension": found.dimension,
        "eps": vars(eps_breaking(layer, ng.WeightMatrixRescale, units=UNITS)),
    }
    return Findings(table.records(), outliers(options), facts)


def attacked(layer: nn.Module, *, examples: int) -> list[str]:
    """Run the property tests of the claims; return their names, each of which passed.

    Raises:
        AssertionError: with the example, if a claim does not hold or one is missing.
    """
    from normgeom.testing import invariance_checks

    names = []
    for check in invariance_checks(layer, CLAIMS, units=UNITS, examples=examples):
        check()
        names.append(check.id)
    return names


def outliers(options: Options) -> list[dict[str, Any]]:
    """How the spread of the other units shrinks as one unit moves away, in both norms."""
    generator = options.generator()
    summed = torch.randn(64, UNITS, generator=generator, dtype=torch.float64)
    rows = []
    for name, norm in (("Gini norm", GiniNorm(UNITS, eps=0.0)), ("layer norm", nn.LayerNorm(UNITS, eps=0.0))):
        for distance in torch.logspace(0, 3, 13, dtype=torch.float64):
            moved = summed.clone()
            moved[:, 0] += distance
            with torch.no_grad():
                others = norm.double()(moved)[:, 1:]
            spread = float(others.std(1).mean())
            rows.append({"norm": name, "distance": float(distance), "spread": spread})
    return rows


def draw(found: Findings) -> Figure:
    """The rows above, the outlier below."""
    with style(height=3.6, xtick__labelsize=6.5, ytick__labelsize=7.5, axes__labelsize=7):
        figure, (above, below) = plt.subplots(2, 1, height_ratios=(1, 1.1))
        draw_invariances(found.cells, above)
        _draw_outliers(found.outliers, below)
    return figure


def _draw_outliers(rows: Sequence[dict[str, Any]], ax: Axes) -> None:
    for k, name in enumerate(dict.fromkeys(row["norm"] for row in rows)):
        mine = [row for row in rows if row["norm"] == name]
        x, y = [row["distance"] for row in mine], [row["spread"] for row in mine]
        ax.plot(x, y, "os"[k] + "--"[k:], ms=3, lw=1.1, mfc="white", color=COLOURS[k])
        ax.annotate(name, (x[-1], y[-1]), (4, 0), textcoords="offset points", va="center", fontsize=7)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("distance of one unit from the others (their standard deviations)")
    ax.set_ylabel("spread of the\nother units' z")
    last = {row["norm"]: row["spread"] for row in rows}
    ax.set_title(
        f"one far unit: the others keep {last['Gini norm'] / last['layer norm']:.2f} times the spread that "
        "layer norm leaves them",
        fontsize=7,
    )
    ax.margins(x=0.16)


def write(options: Options) -> list[Path]:
    """Write new_variant.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", {"cells": found.cells, "outliers": found.outliers, "facts": found.facts})
    write_text(f"{stem}.md", f"# A new norm, tested, proved, drawn\n\n{explain(found)}\n")
    return [*(Path(f"{stem}.{kind}") for kind in ("json", "md")), *save_figure(draw(found), stem)]


def explain(found: Findings) -> str:
    """Say what was found, with the evidence."""
    facts = found.facts
    evidence, follows = "\n\n".join(facts["evidence"]), "\n".join(f"* {line}" for line in facts["advice"])
    changes = ", ".join(
        f"{change:.0e} at {size:g}"
        for size, change in zip(facts["eps"]["sizes"], facts["eps"]["changes"], strict=True)
    )
    return f"""\
The layer is `GiniNorm` in `analyses/new_variant.py`. It has the row of layer norm, up to its eps:
{len(facts["checks"])} property tests hold ({", ".join(facts["checks"])}).
Doubling the weights changes an output, by its eps alone, by {changes} (size of the summed inputs).

What follows:

{follows}

All affine symmetries of its weight (4 units, 3 inputs), each confirmed by a finite transform; the
dimension is {facts["dimension"]}, as of layer norm, 1 + D(p + 1):

```text
{facts["symmetries"]}
```

The evidence of its row:

```text
{evidence}
```"""
