"""Does an initial gain of 0.1 serve better than 1.0, and the gain of which norm is it that matters."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from analyses._recurrent import (
    NAMES,
    UNITS,
    Row,
    curve,
    last,
    mean_and_error,
    model_of,
    signed,
    size_of,
    task_of,
)
from analyses._run import Options
from analyses._runs import finished
from normgeom.figures import draw_gain_costs, draw_gain_curves, save_figure, style
from normgeom.models import LNGRU, LNLSTM
from normgeom.report import to_markdown, write_json, write_text

CELLS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "LN-LSTM": (LNLSTM, ("input", "recurrent", "cell")),
    "LN-GRU": (LNGRU, ("input", "recurrent")),
}
SMALL = 0.1
CAPTION = (
    "Initial gain 1.0 against 0.1 in the cells of the paper: held-out bits against the step, mean and "
    "range over seeds; dotted, with the gain of one norm alone at 0.1. Below: what 0.1 costs at the last "
    "step, over the same seed with all gains at 1.0, for all gains and for the norm at the input, the "
    "hidden state and the cell state alone; small dots are seeds, bars two standard errors. Runs of one "
    "seed start from the same weights. Numbers after ± are standard errors over seeds."
)


@dataclass(frozen=True)
class Findings:
    """Points of the curves, the cost of small gains for every seed, and what the runs were."""

    points: list[Row]
    costs: list[Row]
    runs: dict[str, Any]


def small_gains(cell: str) -> dict[str, tuple[str, ...]]:
    """Return by name the norms whose gain starts at 0.1: none, all, each alone."""
    places = CELLS[cell][1]
    return {"none": (), "all": places} | {place: (place,) for place in places}


def compute(options: Options) -> Findings:
    """Train both cells on both tasks from every choice of initial gains, with every seed."""
    size = size_of(options)
    runs = [
        (seed, name, cell, small)
        for seed, name, cell in itertools.product(range(size.seeds), size.steps, CELLS)
        for small in small_gains(cell)
    ]
    tasks = {(s, n): task_of(n, options.seed + s, size, options) for s, n, *_ in runs}

    def points_of(run: tuple[int, str, str, str]) -> list[Row]:
        seed, name, cell, small = run
        task = tasks[seed, name]
        model = model_of(task, partial(CELLS[cell][0], hidden_size=size.hidden), options.seed + seed)
        set_gains(model.core, dict.fromkeys(small_gains(cell)[small], SMALL))
        what = {"task": name, "cell": cell, "small": small, "seed": seed}
        points = [{**what, **point} for point in curve(model, task, size.steps[name], size, options)]
        points[-1]["gains"] = gains(model.core, CELLS[cell][1])
        return points

    points = list(itertools.chain.from_iterable(finished(options, "gain_init", runs, points_of)))
    return Findings(
        points,
        costs_of(points),
        {"hidden": size.hidden, "seeds": size.seeds, "steps": dict(size.steps), "lr": size.lr},
    )


def set_gains(core: Any, values: Mapping[str, float]) -> None:
    """Set the gain of the norms at these places of the first layer."""
    with torch.no_grad():
        for place, value in values.items():
            getattr(core.layer0, f"norm_{place}").gain.fill_(value)


def gains(core: Any, places: Sequence[str]) -> dict[str, float]:
    """Return the root mean square gain of each norm of the first layer."""
    found = {place: getattr(core.layer0, f"norm_{place}").gain.detach() for place in places}
    return {place: float((gain * gain).mean().sqrt()) for place, gain in found.items()}


def costs_of(points: Sequence[Row]) -> list[Row]:
    """Return the bits at the last step over those of the same seed with all gains at 1."""
    bits = last(points, ("task", "cell", "small", "seed"))
    return [
        {"task": task, "cell": cell, "small": small, "seed": seed,
         "cost": value - bits[task, cell, "none", seed]}
        for (task, cell, small, seed), value in bits.items()
        if small != "none"
    ]  # fmt: skip


def cost(costs: Sequence[Row], task: str, cell: str, small: str) -> tuple[float, float]:
    """Return mean and standard error over seeds of what a choice of small gains costs."""
    mine = [row["cost"] for row in costs if (row["task"], row["cell"], row["small"]) == (task, cell, small)]
    return mean_and_error([np.nan if value is None else value for value in mine])


def finding(costs: Sequence[Row], task: str, cell: str) -> str:
    """Say in one line which initial gain is better, or that seeds do not tell."""
    mean, error = cost(costs, task, cell, "all")
    if not np.isfinite(mean):
        return "a run diverged"
    if abs(mean) < 2 * error:
        return f"1.0 and 0.1 alike ({signed(mean)} ± {error:.1g} bits)"
    winner, loser = ("1.0", "0.1") if mean > 0 else ("0.1", "1.0")
    return f"{winner} beats {loser} by {abs(mean):.2f} ± {error:.1g} bits"


def beside_the_paper(finding: str) -> str:
    """Say whether a finding is that of the paper's attentive reader, in which 1.0 is better."""
    if finding.startswith("a run"):
        return ""
    agrees = finding.startswith("1.0 beats")
    return f"; {'as in' if agrees else '**unlike** in'} the paper's attentive reader"


def draw(points: Sequence[Row], costs: Sequence[Row]) -> Figure:
    """Draw curves above, costs below, a column for each task and cell."""
    columns = list(dict.fromkeys((row["task"], row["cell"]) for row in points))
    with style(height=4.2, axes__titlesize=7, xtick__labelsize=6.5, ytick__labelsize=6.5, axes__labelsize=7):
        figure, grid = plt.subplots(
            2, len(columns), squeeze=False, layout="constrained", gridspec_kw={"height_ratios": [1.5, 1]}
        )
        for (top, bottom), (task, cell) in zip(grid.T, columns, strict=True):
            chosen = [row for row in points if (row["task"], row["cell"]) == (task, cell)]
            draw_gain_curves(chosen, top)
            draw_gain_costs([row for row in costs if (row["task"], row["cell"]) == (task, cell)], bottom)
            top.set_title(f"{cell}, {NAMES[task].split(',')[0]}:\n" + finding(costs, task, cell).replace(
                " by ", "\nby ").replace(" (", "\n("))  # fmt: skip
            top.set_xlabel("step")
            top.set_ylabel(f"held-out {UNITS[task]}")
        figure.supxlabel(
            "norm whose gain starts at 0.1, the others at 1.0 (I: input, R: recurrent, C: cell state)",
            fontsize=7,
        )
        grid[1, 0].set_ylabel("bits over those with 1.0\n(above 0: 0.1 is worse)")
    return figure


def write(options: Options) -> list[Path]:
    """Write gain_init.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", vars(found))
    write_text(
        f"{stem}.md", f"# Initial gain 1.0 against 0.1\n\n{CAPTION}\n\n{table(found)}\n\n{explain(found)}"
    )
    return [Path(f"{stem}.json"), Path(f"{stem}.md"), *save_figure(draw(found.points, found.costs), stem)]


def table(found: Findings) -> str:
    """Return the cost of every choice of small gains, mean ± standard error over seeds."""
    lines = []
    for task, cell in itertools.product(found.runs["steps"], CELLS):
        cells = {
            small: f"{signed(mean, 3)} ± {error:.3f}"
            for small in small_gains(cell)
            if small != "none"
            for mean, error in [cost(found.costs, task, cell, small)]
        }
        lines.append(
            [f"{cell}, {UNITS[task]}", *(cells.get(s, "–") for s in ("all", "input", "recurrent", "cell"))]
        )
    return to_markdown(["bits that gain 0.1 costs", "all", "input", "recurrent", "cell"], lines)


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    lines = []
    for (task, steps), cell in itertools.product(found.runs["steps"].items(), CELLS):
        alone = {place: cost(found.costs, task, cell, place) for place in CELLS[cell][1]}
        worst = max(alone, key=lambda place: abs(alone[place][0]))
        mean, error = alone[worst]
        ends = [
            row["gains"]
            for row in found.points
            if (row["task"], row["cell"], row["small"]) == (task, cell, "all") and "gains" in row
        ]
        grown = ", ".join(f"{place} {np.mean([end[place] for end in ends]):.2f}" for place in CELLS[cell][1])
        said = finding(found.costs, task, cell)
        lines.append(
            f"* {cell}, {NAMES[task]}, {steps} steps: {said}{beside_the_paper(said)}. Of single gains, that "
            f"at the {worst} has the largest effect: {signed(mean, 3)} ± {error:.3f}. Gains that all start "
            f"at 0.1 end at {grown} (root mean square)."
        )
    lines.append(
        f"* {found.runs['hidden']} units, Adam at {found.runs['lr']:g}, gradient clipped at 1, "
        f"{found.runs['seeds']} seeds; one learning rate for all."
    )
    return "\n".join(lines)
