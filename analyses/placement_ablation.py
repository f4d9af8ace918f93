"""Which of the three norms of the paper's LSTM matter: all eight placements, on two tasks."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
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
from normgeom.figures import draw_placement_curves, draw_placement_effects, save_figure, style
from normgeom.models import LNLSTM, Placement
from normgeom.report import to_markdown, write_json, write_text

PLACES = ("input", "recurrent", "cell")
PLACEMENTS = [Placement(*on) for on in itertools.product((False, True), repeat=3)]
EFFECTS = [term for size in (1, 2, 3) for term in itertools.combinations(PLACES, size)]
CAPTION = (
    "The layer-normalized LSTM with a norm at the product of the input (I), at that of the hidden state "
    "(R) and at the cell state (C), each on or off: held-out bits against the step, mean and range over "
    "seeds. Right: effect of each norm on the held-out bits at the last step (on minus off, averaged over "
    "the four settings of the other two), and interactions (half the change of one effect by the other "
    "norm); small dots are seeds, bars two standard errors. Below 0 the norm helps. Runs of one seed start "
    "from the same weights and read the same batches. Numbers after ± are standard errors over seeds."
)


@dataclass(frozen=True)
class Findings:
    """Points of the curves, effects for every seed, and what the runs were."""

    points: list[Row]
    effects: list[Row]
    runs: dict[str, Any]


def compute(options: Options) -> Findings:
    """Train all eight placements on both tasks, with every seed."""
    size = size_of(options)
    jobs = list(itertools.product(range(size.seeds), size.steps, PLACEMENTS))

    def points_of(job: tuple[int, str, Placement]) -> list[Row]:
        seed, name, placement = job
        task = task_of(name, options.seed + seed, size, options)
        make = partial(LNLSTM, hidden_size=size.hidden, placement=placement)
        what = {"task": name, "seed": seed, **{place: getattr(placement, place) for place in PLACES}}
        points = curve(model_of(task, make, options.seed + seed), task, size.steps[name], size, options)
        return [{**what, **point} for point in points]

    points = list(itertools.chain.from_iterable(finished(options, "placement_ablation", jobs, points_of)))
    runs = {"hidden": size.hidden, "seeds": size.seeds, "steps": dict(size.steps), "lr": size.lr}
    return Findings(points, effects_of(points), runs)


def letters(row: Row) -> str:
    """Return a placement's name, such as `I R –` for norms at input and hidden state."""
    return " ".join(place[0].upper() if row[place] else "–" for place in PLACES)


def effects_of(points: Sequence[Row]) -> list[Row]:
    """Return the factorial effects on the bits at the last step, for every task and seed.

    `effect(S) = 1/4 sum over the 8 placements of bits * prod_{place in S} (+1 if on, else -1)`, for two
    places divided by 2 and for three by 4: half, a quarter of the change of one effect by the others.
    """
    bits, rows = last(points, ("task", "seed", *PLACES)), []
    for task, seed in dict.fromkeys(key[:2] for key in bits):
        for term in EFFECTS:
            total = sum(
                bits[(task, seed, *on)]
                * float(np.prod([1 if on[PLACES.index(place)] else -1 for place in term]))
                for on in itertools.product((False, True), repeat=3)
            )
            rows.append({"task": task, "seed": seed, "term": " × ".join(term), "effect": total / 4})
    return rows


def summary(effects: Sequence[Row]) -> list[Row]:
    """Return mean and standard error over seeds of every effect."""
    rows = []
    for task, term in dict.fromkeys((row["task"], row["term"]) for row in effects):
        mine = [row["effect"] for row in effects if (row["task"], row["term"]) == (task, term)]
        mean, error = mean_and_error([np.nan if value is None else value for value in mine])
        rows.append({"task": task, "term": term, "mean": mean, "error": error})
    return rows


def finding(effects: Sequence[Row], task: str) -> str:
    """Say in one line which norm matters most on a task, or that seeds do not tell."""
    mains = [row for row in summary(effects) if row["task"] == task and row["term"] in PLACES]
    if any(not np.isfinite(row["mean"]) for row in mains):
        return "a run diverged: no effects"
    first, second = sorted(mains, key=lambda row: -abs(row["mean"]))[:2]
    verb = "helps" if first["mean"] < 0 else "hurts"
    number = f"{signed(first['mean'])} ± {first['error']:.1g} bits"
    if abs(first["mean"]) < 2 * first["error"]:
        return f"no norm's effect exceeds 2 standard errors ({first['term']}: {number})"
    clear = abs(first["mean"]) - abs(second["mean"]) > 2 * np.hypot(first["error"], second["error"])
    return f"the norm at the {first['term']} {verb}{' most' if clear else ', among others'}: {number}"


def draw(points: Sequence[Row], effects: Sequence[Row]) -> Figure:
    """Draw curves and effects, a row of panels for each task."""
    tasks = list(dict.fromkeys(row["task"] for row in points))
    with style(height=2.45 * len(tasks), axes__titlesize=7.5, xtick__labelsize=6.5, ytick__labelsize=6.5,
               axes__labelsize=7):  # fmt: skip
        figure, grid = plt.subplots(
            len(tasks), 2, gridspec_kw={"width_ratios": [1.55, 1]}, squeeze=False, layout="constrained"
        )
        for (left, right), task in zip(grid, tasks, strict=True):
            draw_placement_curves([row for row in points if row["task"] == task], left)
            draw_placement_effects([row for row in effects if row["task"] == task], right)
            left.set_title(f"{NAMES[task].capitalize()}: {finding(effects, task)}", loc="left", fontsize=7.5)
            left.set_ylabel(f"held-out {UNITS[task]}")
            right.set_xlabel("effect on bits (below 0: helps)")
        grid[-1, 0].set_xlabel("step")
    return figure


def write(options: Options) -> list[Path]:
    """Write placement_ablation.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", {"points": found.points, "effects": found.effects, "runs": found.runs})
    write_text(
        f"{stem}.md",
        f"# Which norm of the LSTM matters\n\n{CAPTION}\n\n{table(found)}\n\n{explain(found)}",
    )
    return [Path(f"{stem}.json"), Path(f"{stem}.md"), *save_figure(draw(found.points, found.effects), stem)]


def table(found: Findings) -> str:
    """Return the bits at the end for every placement, mean ± standard error over seeds."""
    bits = last(found.points, ("task", *PLACES, "seed"))
    tasks = list(found.runs["steps"])
    lines = []
    for on in itertools.product((False, True), repeat=3):
        ends = [
            mean_and_error([value for key, value in bits.items() if key[:-1] == (task, *on)])
            for task in tasks
        ]
        lines.append(
            [letters(dict(zip(PLACES, on, strict=True))), *(f"{mean:.3f} ± {err:.3f}" for mean, err in ends)]
        )
    return to_markdown(["norms at", *(f"held-out {UNITS[task]}" for task in tasks)], lines)


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    lines = []
    for task, steps in found.runs["steps"].items():
        terms = ", ".join(
            f"{row['term']} {signed(row['mean'], 3)} ± {row['error']:.3f}"
            for row in summary(found.effects)
            if row["task"] == task
        )
        lines.append(f"* {NAMES[task].capitalize()}, {steps} steps: {finding(found.effects, task)}. {terms}.")
    lines.append(
        f"* {found.runs['hidden']} units, Adam at {found.runs['lr']:g}, gradient clipped at 1, "
        f"{found.runs['seeds']} seeds; one learning rate for all, so that effects are those at this rate and "
        "this length of training."
    )
    return "\n".join(lines)
