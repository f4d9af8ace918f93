"""Table 1 of the paper, each cell decided by three engines, with the RMSNorm and un-normalized rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import normgeom as ng
from analyses._run import Options
from normgeom.figures import draw_invariances, save_figure, style
from normgeom.invariance import InvarianceTable
from normgeom.report import write_json, write_text

LAYERS = {
    "batch norm": ng.BatchNorm(),
    "weight norm": ng.WeightNorm(),
    "layer norm": ng.LayerNorm(),
    "RMSNorm": ng.RMSNorm(),
    "W LN(x)": ng.InputLayerNorm(),
    "no norm": ng.NoNorm(),
}
CAPTION = (
    "Table 1 of Ba et al. (2016), regenerated, with three rows that the paper does not have. Each cell is "
    "decided by sampled transforms in float64, by fractions and by polynomial identities, which must agree. "
    "The number is the largest change of an output over the largest output; ∝δ: the outputs scale with the "
    "transform. Statistics from the data, eps = 0, scales δ > 0."
)


def compute(options: Options) -> InvarianceTable:
    """Check every cell."""
    return ng.invariance_table(
        LAYERS, units=8, inputs=6, cases=12, device=options.device, generator=options.generator()
    )


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the table as a picture."""
    with style(height=2.35, xtick__labelsize=6.5, ytick__labelsize=7.5):
        figure, ax = plt.subplots()
        draw_invariances(rows, ax)
    return figure


def write(options: Options) -> list[Path]:
    """Write table1.{json,md,tex,pdf,png}."""
    stem, table = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", table.records())
    write_text(
        f"{stem}.md", f"# Table 1\n\n{CAPTION}\n\n{table.to_markdown()}\n\n## Evidence\n\n{evidence(table)}"
    )
    write_text(f"{stem}.tex", table.to_latex(caption=CAPTION, label="tab:table1"))
    return [
        *(Path(f"{stem}.{kind}") for kind in ("json", "md", "tex")),
        *save_figure(draw(table.records()), stem),
    ]


def evidence(table: InvarianceTable) -> str:
    """Return the proof or the witness of every cell, as Markdown."""
    parts = []
    for row in table:
        parts.append(f"### {row.layer}\n")
        for verdict in row:
            parts.append(f"**{verdict.title}: {verdict.kind}** (engines: {', '.join(verdict.engines)})\n")
            if verdict.proof:
                parts.append(f"$${verdict.proof.latex}$$\n")
            parts.append(f"```text\n{verdict}\n```\n")
    return "\n".join(parts)
