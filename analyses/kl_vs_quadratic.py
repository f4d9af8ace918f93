"""KL against its quadratic form over step sizes, for norms and families, with the order of the error."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from analyses._glms import FAMILIES, NORMS, problem
from analyses._run import Options
from normgeom.figures import draw_kl, save_figure, style
from normgeom.geometry.metric import kl_against_quadratic, length
from normgeom.report import to_markdown, write_json, write_text

CAPTION = (
    "KL(θ ‖ θ + t d) against its quadratic form t² dᵀFd / 2, over the step size t, along a random "
    "direction d in weights, biases and gains, scaled to dᵀFd = 1. Points are the difference of the two, "
    "for each norm; the line without points is the quadratic form itself. The difference falls as t³, one "
    "power faster, which makes F the metric. A linear model with Gaussian outputs has no difference."
)


def compute(options: Options) -> list[dict[str, Any]]:
    """Measure KL and its quadratic form at every step size."""
    sizes = tuple(2.0**-k for k in range(0, 17, 4 if options.quick else 2))
    rows = []
    for family in FAMILIES:
        for norm in NORMS:
            case = problem(norm, family, options, units=4, inputs=5, cases=40 if options.quick else 200)
            unit = direction(*case, options=options)
            found = kl_against_quadratic(*case, unit, sizes=sizes)
            rows += [
                {"norm": norm, "family": family, "size": size, "kl": kl, "quadratic": quadratic,
                 "difference": abs(kl - quadratic), "order": found.order}
                for size, kl, quadratic in zip(found.sizes, found.kl, found.quadratic, strict=True)
            ]  # fmt: skip
    return rows


def direction(model: Any, params: Any, data: Any, *, options: Options) -> dict[str, torch.Tensor]:
    """Return a random direction in all parameters, of length 1 in the metric."""
    generator = torch.Generator().manual_seed(options.seed + 1)
    step = {
        name: torch.randn(value.shape, generator=generator, dtype=value.dtype).to(value.device)
        for name, value in params.items()
    }
    size = float(length(model, params, data, step))
    return {name: value / size for name, value in step.items()}


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw one panel for each family."""
    with style(height=4.3, axes__titlesize=7.5, xtick__labelsize=7, ytick__labelsize=7):
        figure, grid = plt.subplots(2, 2, sharex=True, sharey=True)
        for ax, family in zip(grid.ravel(), FAMILIES, strict=True):
            mine = [row for row in rows if row["family"] == family]
            draw_kl(mine, ax)
            orders = [row["order"] for row in mine if row["order"] is not None]
            ax.set_title(f"{family} outputs\nfitted order {min(orders):.2f} to {max(orders):.2f}")
        handles, labels = grid[0, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=7)
        figure.supxlabel(r"step size $t$ (length of the step in the metric)", fontsize=8)
        figure.supylabel("nats", fontsize=8)
    return figure


def write(options: Options) -> list[Path]:
    """Write kl_vs_quadratic.{json,md,pdf,png}."""
    stem, rows = options.stem(__file__), compute(options)
    header = ["norm", *FAMILIES]
    orders = {(row["norm"], row["family"]): row["order"] for row in rows}
    table = [[norm, *(_order(orders[norm, family]) for family in FAMILIES)] for norm in NORMS]
    write_json(f"{stem}.json", rows)
    write_text(
        f"{stem}.md",
        f"# KL and its quadratic form\n\n{CAPTION}\n\nFitted order of the difference:\n\n"
        f"{to_markdown(header, table)}\n\n{explain(rows)}",
    )
    return [Path(f"{stem}.json"), Path(f"{stem}.md"), *save_figure(draw(rows), stem)]


def explain(rows: Sequence[dict[str, Any]]) -> str:
    """Say what the numbers show."""
    orders = sorted({row["order"] for row in rows if row["order"] is not None})
    linear = [row for row in rows if row["order"] is None]
    rest = max(row["difference"] / row["quadratic"] for row in linear)
    which = ", ".join(dict.fromkeys(f"{row['norm']} with {row['family']} outputs" for row in linear))
    at = {size: [row["difference"] / row["quadratic"] for row in rows if row["size"] == size and row["order"]]
          for size in (1.0, min(row["size"] for row in rows))}  # fmt: skip
    (large, first), (tiny, last) = at.items()
    return f"""\
* The fitted order lies between {orders[0]:.3f} and {orders[-1]:.3f} for all norms and families but {which},
  where nothing is left but rounding (relative {rest:.0e}).
* At a step of length {large:g} (half a nat by the quadratic form) KL is off by {100 * min(first):.1f} to
  {100 * max(first):.0f} % of it; at {tiny:.2g} by {100 * min(last):.1g} to {100 * max(last):.1g} %."""


def _order(value: float | None) -> str:
    return "exact" if value is None else f"{value:.3f}"
