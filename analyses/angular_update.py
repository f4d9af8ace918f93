"""Norm and angle of W_h in a real LN-LSTM against theory: equilibrium with weight decay, growth without."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analyses._language_model import Training, geometric_mean, records, slope, windows
from analyses._run import Options
from analyses._runs import finished
from normgeom.dynamics import AdamRule, LionRule, SGDRule, equilibrium, norm_growth, rule_of
from normgeom.figures import COLOURS, MARKERS, draw_band, name_ends, save_figure, style
from normgeom.report import to_markdown, write_json, write_text

SETTINGS: dict[str, tuple[str, float, float]] = {
    "SGD": ("SGD", 1.0, 0.005),
    "SGDM": ("SGD with momentum", 0.1, 0.005),
    "Adam + L2": ("Adam", 0.003, 0.005),
    "AdamW": ("AdamW", 0.003, 2.0),
    "Lion": ("Lion", 0.0005, 10.0),
}
"""Name, optimizer, learning rate, weight decay."""

DECAYS = ("with weight decay", "without")
LATE = 0.6
"""The share of the steps after which norm and angle are compared with the equilibrium."""


@dataclass(frozen=True)
class Findings:
    """Curves in the units of theory, and predicted beside measured for every run's optimizer."""

    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]


def runs(options: Options) -> list[tuple[str, str, Training]]:
    """Return every run with its name and whether its weights decay; Adam without decay is AdamW without."""
    steps, seeds = (16, 2) if options.quick else (4000, 5) if options.full else (320, 3)
    return [
        (name, decay, Training(optimizer=optimizer, rate=rate, decay=pull if decay == DECAYS[0] else 0.0,
                               scale=0.5 if decay == DECAYS[0] else 0.25, seed=options.seed + k, steps=steps,
                               hidden=16 if options.quick else 64))
        for decay, (name, (optimizer, rate, pull)), k in itertools.product(
            DECAYS, SETTINGS.items(), range(seeds)
        )
        if (name, decay) != ("Adam + L2", DECAYS[1])
    ]  # fmt: skip


def compute(options: Options) -> Findings:
    """Train all runs, and set norm and angle in relation to what theory says."""

    def found_in(job: tuple[str, str, Training]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        name, decay, run = job
        frame = run.run(options.device)[0]
        own = frame[frame["block"] == "W_h"].reset_index(drop=True)
        label = {"optimizer": name, "decay": decay, "seed": run.seed}
        said = settled(run, own) if decay == DECAYS[0] else growing(run, own)
        columns = ["step", "norm", "angular_update", "effective_learning_rate"]
        means = windows(own[["block", *columns]], ["block"], count=20)
        own_rows = records(means.drop(columns="block"))
        rows = [{**label, **row, **in_units(row, said)} for row in own_rows]
        return rows, {**label, "rate": run.rate, "weight decay": run.decay, **said}

    each, ends = zip(*finished(options, "angular_update", runs(options), found_in), strict=True)
    return Findings(list(itertools.chain.from_iterable(each)), summarized(ends))


def in_units(row: dict[str, Any], said: dict[str, float]) -> dict[str, float]:
    """Return time, norm, angle and rate of a window of steps in the units of theory."""
    return {
        "time": row["step"] / said["time"],
        "relative norm": row["norm"] / said["norm unit"],
        "relative angle": row["angular_update"] / said["angle unit"],
        "relative rate": row["effective_learning_rate"] / said["rate unit"],
    }


def rule(run: Training) -> Any:
    """Return the update rule of W_h."""
    optimizer = run.make_optimizer(run.model())
    return rule_of(optimizer, optimizer.param_groups[0])


def settled(run: Training, own: pd.DataFrame) -> dict[str, float]:
    """Return the equilibrium beside the means of the last steps; L is measured over the same steps."""
    late = own[own["step"] > LATE * run.steps]
    squared = float(((late["gradient_norm"] * late["norm"]) ** 2).mean())
    found = equilibrium(rule(run), coordinates=int(own["C"].iloc[0]), squared_gradient=squared)
    return {
        "time": found.steps, "norm unit": found.norm, "angle unit": found.angle,
        "rate unit": float(late["effective_learning_rate"].mean()),
        "predicted norm": found.norm, "measured norm": float(late["norm"].mean()),
        "predicted angle": found.angle, "measured angle": float(late["angular_update"].mean()),
        "L": squared, "slope": float("nan"),
    }  # fmt: skip


def growing(run: Training, own: pd.DataFrame) -> dict[str, float]:
    """Return growth and angle without decay beside the measured; L is the mean over the run.

    The time is that in which, by theory, the square of the effective rate falls by half:
    `rate ~ (1 + t/time)^(−½)`.
    """
    moves, coordinates, first = rule(run), int(own["C"].iloc[0]), float(own["norm"].iloc[0])
    squared = float(((own["gradient_norm"] * own["norm"]) ** 2).mean())
    power = 4 if isinstance(moves, SGDRule) else 2
    numbers: dict[str, Any] = {"coordinates": coordinates, "squared_gradient": squared}
    time = first**power / (norm_growth(moves, first, 1.0, **numbers) ** power - first**power)
    late = own[own["step"] > LATE * run.steps]
    angles = single_angle(moves, late["norm"].to_numpy(), coordinates, squared)
    return {
        "time": time, "norm unit": first, "rate unit": float(moves.effective_learning_rate(first)),
        "angle unit": float(single_angle(moves, np.array([first]), coordinates, squared)[0]),
        "predicted norm": float(np.mean(norm_growth(moves, first, late["step"].to_numpy() - 1, **numbers))),
        "measured norm": float(late["norm"].mean()),
        "predicted angle": float(angles.mean()), "measured angle": float(late["angular_update"].mean()),
        "L": squared, "slope": slope(late["step"], late["effective_learning_rate"]),
    }  # fmt: skip


def single_angle(moves: Any, norm: Any, coordinates: int, squared: float) -> Any:
    """Return the angle of a step at a norm, for gradients that are independent of each other.

    The step's length over ‖w‖: SGD `η√L/‖w‖²/√(1−α²)`, Adam `η√C/‖w‖ √((1−β₁)/(1+β₁))`, Lion `η√C/‖w‖`.
    """
    if isinstance(moves, SGDRule):
        return moves.learning_rate * squared**0.5 / norm**2 / (1 - moves.momentum**2) ** 0.5
    spread = (1 - moves.beta1) / (1 + moves.beta1) if isinstance(moves, AdamRule) else 1.0
    assert isinstance(moves, AdamRule | LionRule)
    return moves.learning_rate * (coordinates * spread) ** 0.5 / norm


def summarized(ends: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return predicted and measured norm and angle of each optimizer, ratios with their span over seeds."""
    found = []
    for decay, name in itertools.product(DECAYS, SETTINGS):
        own = [end for end in ends if (end["optimizer"], end["decay"]) == (name, decay)]
        if not own:
            continue
        row: dict[str, Any] = {"optimizer": name, "decay": decay, "rate": own[0]["rate"],
                               "weight decay": own[0]["weight decay"],
                               "times": float(np.mean([end["time"] for end in own])),
                               "slope": float(np.mean([end["slope"] for end in own]))}  # fmt: skip
        for what in ("norm", "angle"):
            for kind in ("predicted", "measured"):
                row[f"{kind} {what}"] = geometric_mean(end[f"{kind} {what}"] for end in own)
            row[f"{what} ratios"] = [end[f"measured {what}"] / end[f"predicted {what}"] for end in own]
        found.append(row)
    return found


def draw(rows: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]]) -> Figure:
    """Draw norm and angle over equilibrium with decay, and rate and angle without, in units of theory."""
    with style(
        height=4.7, axes__titlesize=7.5, axes__labelsize=7, xtick__labelsize=6.5, ytick__labelsize=6.5
    ):
        figure, grid = plt.subplots(2, 2)
        for ax, y in zip(grid[0], ("relative norm", "relative angle"), strict=True):
            _draw_panel(rows, summary, DECAYS[0], y, ax)
            ends = [row["time"] for row in rows if row["decay"] == DECAYS[0]]
            ax.plot([min(ends), max(ends)], [1, 1], "--", color="black", lw=0.9, zorder=1)
            ax.set_xlabel("steps over the time of approach", labelpad=1)
        for ax, y in zip(grid[1], ("relative rate", "relative angle"), strict=True):
            _draw_panel(rows, summary, DECAYS[1], y, ax)
            ends = [row["time"] for row in rows if row["decay"] == DECAYS[1]]
            x = np.geomspace(min(ends), max(ends), 100)
            ax.plot(x, (1 + x) ** -0.5, "--", color="black", lw=0.9, zorder=1)
            ax.set_xlabel("steps over the time of growth $t^*$", labelpad=1)
        _name(grid)
        figure.suptitle(_title(summary), fontsize=7.5)
    return figure


def _draw_panel(
    rows: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]], decay: str, y: str, ax: Axes
) -> None:
    """A curve with a band over seeds for every optimizer, named with its ratio to theory."""
    names, ends, colours, last = [], [], [], 0.0
    for k, name in enumerate(SETTINGS):
        mine = [row for row in rows if (row["optimizer"], row["decay"]) == (name, decay)]
        if not mine:
            continue
        # L differs a little from seed to seed, and with it the unit of time.
        steps = sorted({row["step"] for row in mine})
        times = {t: geometric_mean(r["time"] for r in mine if r["step"] == t) for t in steps}
        points = [{**row, "time": times[row["step"]]} for row in mine]
        draw_band(points, ax, x="time", y=y, colour=COLOURS[k])
        middle = [geometric_mean(r[y] for r in points if r["step"] == t) for t in steps]
        ax.plot(list(times.values()), middle, MARKERS[k], ms=2.6, color=COLOURS[k], mfc="white", mew=0.6)
        said = next(s for s in summary if (s["optimizer"], s["decay"]) == (name, decay))
        ratios = said["angle ratios" if "angle" in y else "norm ratios"]
        names.append(f"{name}: {geometric_mean(ratios):.2f}")
        ends.append(middle[-1])
        colours.append(COLOURS[k])
        last = max(last, *times.values())
    name_ends(ax, float(last), ends, names, colours, share=0.3)


def _name(grid: Any) -> None:
    """Name panels and lines."""
    titles = (("weight decay: norm over equilibrium", "weight decay: angle over equilibrium"),
              ("no decay: effective rate over its first", "no decay: angle over theory's first"))  # fmt: skip
    for row, names in zip(grid, titles, strict=True):
        for ax, name in zip(row, names, strict=True):
            ax.set_title(name)
    for ax, bottom in zip(grid.ravel(), (1.3, 1.7, 2.5, 2.5), strict=True):
        limits = ax.get_ylim()[0] / bottom, ax.get_ylim()[1]
        ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 0.7, 1, 1.4, 2, 3, 5) if limits[0] < tick < limits[1]]
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.set_ylim(limits)
    where: dict[str, Any] = {"size": 6, "bbox": {"fc": "white", "ec": "none", "alpha": 0.7, "pad": 0.5}}
    for ax in grid[0]:
        ax.text(0.03, 0.04, "– – theory\nnumbers: measured / theory, late", transform=ax.transAxes, **where)
    for ax, what in zip(grid[1], ("norm", "angle"), strict=True):
        text = f"– – theory, $(1 + t/t^*)^{{-1/2}}$\nnumbers: {what} measured / theory, late"
        ax.text(0.03, 0.04, text, transform=ax.transAxes, **where)


def _title(summary: Sequence[dict[str, Any]]) -> str:
    """What is found, in numbers."""
    norm = {s["optimizer"]: geometric_mean(s["norm ratios"]) for s in summary if s["decay"] == DECAYS[0]}
    least, most = (pick(norm, key=lambda name: norm[name]) for pick in (min, max))
    also = "" if "AdamW" in (least, most) else f" (AdamW: {norm['AdamW']:.2f})"
    falls = [f"−{-s['slope']:.2f}" for s in summary if s["decay"] == DECAYS[1]]
    return (
        f"With weight decay, a real LN-LSTM ends at {norm[least]:.2f} ({least}) to {norm[most]:.2f} ({most}) "
        f"times the norm\nof theory{also}; without, the effective rate falls as "
        f"t to the {min(falls)} to {max(falls)} (theory: −1/2)"
    )


def write(options: Options) -> list[Path]:
    """Write angular_update.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", {"rows": found.rows, "summary": found.summary})
    write_text(f"{stem}.md", f"# Norm and angle against theory\n\n{explain(found, options)}")
    texts = [Path(f"{stem}.{kind}") for kind in ("json", "md")]
    return [*texts, *save_figure(draw(found.rows, found.summary), stem)]


def explain(found: Findings, options: Options) -> str:
    """Say what the numbers show."""
    header = [
        "optimizer",
        "η",
        "λ",
        "norm: theory",
        "measured",
        "ratio",
        "angle: theory",
        "measured",
        "ratio",
    ]
    table = [
        [f"{s['optimizer']}{'' if s['weight decay'] else ', no decay'}",
         f"{s['rate']:g}", f"{s['weight decay']:g}",
         *(text for what in ("norm", "angle") for text in (
             f"{s[f'predicted {what}']:.3g}", f"{s[f'measured {what}']:.3g}", _span(s[f"{what} ratios"])))]
        for s in found.summary
    ]  # fmt: skip
    run = runs(options)[0][2]
    slopes = ", ".join(f"{s['optimizer']} {s['slope']:.2f}" for s in found.summary if not s["weight decay"])
    return f"""\
W_h of an LN-LSTM ({run.hidden} units) that learns the novel, {run.steps} steps, bands and spans over
{len({r["seed"] for r in found.rows})} seeds. Above, with weight decay of W_h and W_x: norm and angle of a
step over their equilibrium. Below, without: the effective learning rate over its first value, and the
angle over that which theory gives the first step; time is in units of `t* = ‖w₀‖⁴/2η²L` (SGD) or
`‖w₀‖²/η²C`, in which every optimizer has the same law. Compared are the last {1 - LATE:.0%} of the steps;
L is measured.

{to_markdown(header, table)}

* **Differs from theory** by the ratios of measured to predicted above, least to largest of the seeds. The
  laws are of gradients that are independent from step to step, at equilibrium; these runs are not much
  longer than the approach to it. Which of the two makes the difference was not measured.
* Without decay, theory's late slope of the effective rate is −1/2 where t is long after t*; measured over
  the last {1 - LATE:.0%} of the steps: {slopes}.""".replace(" -", " −")


def _span(values: Sequence[float]) -> str:
    low, high = (f"{pick(values):.2f}" for pick in (min, max))
    return low if low == high else f"{low} to {high}"
