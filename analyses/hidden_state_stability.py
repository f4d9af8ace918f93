"""How long recurrent states and the gradient in them stay of one size, with layer norm and without."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from analyses._mean_field import layer_norm_rnn_rate
from analyses._recurrent import Row, mean_and_error, signed
from analyses._run import Options
from analyses._runs import finished
from analyses._states import CELLS, norms, slope, theory_of
from normgeom.figures import (
    Masked,
    draw_gradients_over_distance,
    draw_growth_rates,
    draw_states_over_steps,
    save_figure,
    style,
)
from normgeom.report import to_markdown, write_json, write_text
from normgeom.training import Corpus

DRAWN = tuple(name for name in CELLS if "gain" not in name)
CAPTION = (
    "Untrained cells read {steps} characters of the novel, in float64, with the recurrent weight W_h "
    "multiplied by δ (δ = 1: U(−1/√H, 1/√H), H = {hidden}). Top: root mean square of a hidden unit against "
    "the step. Middle: norm of the gradient of the last character's loss in the hidden state, against the "
    "distance from the last step (root mean square over {cases} texts; lines and bands are geometric mean "
    "and range over {seeds} seeds). Bottom: its slope against δ, in powers of ten a hundred steps, fitted "
    "from a distance of {start} on; lines for the RNNs are mean-field theory, not fitted. 0 is stable."
)


@dataclass(frozen=True)
class Size:
    """How much is measured; `shown` are the scales of W_h whose curves are kept."""

    steps: int
    hidden: int
    cases: int
    seeds: int
    scales: tuple[float, ...]
    shown: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)

    @property
    def start(self) -> int:
        """The distance from which slopes are fitted: beyond what the readout and the start do."""
        return self.steps // 14


@dataclass(frozen=True)
class Findings:
    """Points of both kinds of curves, slopes for every seed, and what was run."""

    forward: list[Row]
    backward: list[Row]
    rates: list[Row]
    runs: dict[str, Any]


def size_of(options: Options) -> Size:
    """Return the size for these options."""
    octaves = tuple(2.0**k for k in range(-2, 5))
    if options.quick:
        return Size(70, 16, 2, 2, (0.5, 1.0, 4.0))
    if options.full:
        return Size(700, 256, 16, 10, tuple(2.0 ** (k / 2) for k in range(-4, 9)))
    return Size(700, 128, 8, 3, octaves)


def compute(options: Options) -> Findings:
    """Measure every cell at every scale of the recurrent weight, with every seed."""
    size, corpus = size_of(options), Corpus.from_novel()
    steps = np.unique(np.geomspace(1, size.steps, 24).round().astype(int)).tolist()
    distances = sorted({*range(0, size.steps, max(1, size.steps // 35)), size.steps - 1})

    def found_in(run: tuple[str, float, int]) -> tuple[list[Row], list[Row], Row]:
        name, scale, seed = run
        what = {"cell": name, "scale": scale, "seed": seed}
        states, gradients = norms(
            name, scale, options.seed + seed, corpus, steps=size.steps, cases=size.cases,
            hidden=size.hidden, device=options.device,
        )  # fmt: skip
        shown = name in DRAWN and scale in size.shown
        forward = [{**what, "step": t, "size": states[t - 1]} for t in steps if shown]
        backward = [{**what, "distance": d, "gradient": gradients[d]} for d in distances if shown]
        rate, theory = slope(gradients, size.start), theory_of(name, scale, size.hidden)
        return forward, backward, {**what, "rate": rate, "theory": theory}

    runs = list(itertools.product(CELLS, size.scales, range(size.seeds)))
    forward, backward, rates = zip(*finished(options, "hidden_state_stability", runs, found_in), strict=True)
    return Findings(
        list(itertools.chain.from_iterable(forward)),
        list(itertools.chain.from_iterable(backward)),
        list(rates),
        {"steps": size.steps, "hidden": size.hidden, "cases": size.cases, "seeds": size.seeds,
         "start": size.start},
    )  # fmt: skip


def headline(backward: Sequence[Row]) -> str:
    """Say in one line over how many powers of ten the gradient goes, with the norm and without."""
    far = max(row["distance"] for row in backward)
    (low, high, _), (least, most, _) = span(backward, "LSTM"), span(backward, "LN-LSTM")
    seeds = {row["seed"] for row in backward}
    within = [span([row for row in backward if row["seed"] == seed], "LN-LSTM") for seed in seeds]
    one = max(math.log10(high_of_one / low_of_one) for low_of_one, high_of_one, _ in within)
    return (
        f"Recurrent weight scaled by δ: {far} steps back, gradients span {math.log10(high / low):.0f} "
        f"powers of ten in the LSTM,\n{math.log10(most / least):.0f} in the LN-LSTM over all seeds, "
        f"{one:.1f} over δ within a seed"
    )


def span(rows: Sequence[Row], cell: str) -> tuple[float, float, Masked]:
    """Return the smallest and largest positive gradient at the largest distance, and what is not one."""
    mine = [row for row in rows if row["cell"] == cell]
    far = max(row["distance"] for row in mine)
    values = [math.nan if r["gradient"] is None else r["gradient"] for r in mine if r["distance"] == far]
    shown = [value for value in values if value > 0 and math.isfinite(value)]
    found = Masked(
        sum(v <= 0 for v in values), sum(math.isnan(v) for v in values), sum(v == math.inf for v in values)
    )
    return min(shown, default=math.nan), max(shown, default=math.nan), found


def power(value: float) -> str:
    """Return a number as a power of ten, for mathtext."""
    return f"$10^{{{math.log10(value):.0f}}}$"


def draw(forward: Sequence[Row], backward: Sequence[Row], rates: Sequence[Row]) -> Figure:
    """Draw states and gradients for each cell, and slopes below."""
    far = max(row["distance"] for row in backward)
    with style(
        height=6.3, axes__titlesize=7.5, xtick__labelsize=6.5, ytick__labelsize=6.5, axes__labelsize=7
    ):
        figure = plt.figure(layout="constrained")
        figure.suptitle(headline(backward), fontsize=7.5)
        grid = figure.add_gridspec(3, 4, height_ratios=[1, 1.25, 1.25])
        tops = [figure.add_subplot(grid[0, k]) for k in range(4)]
        middles = [figure.add_subplot(grid[1, k]) for k in range(4)]
        for top, middle, cell in zip(tops, middles, DRAWN, strict=True):
            states = [row for row in forward if row["cell"] == cell]
            gradients = [row for row in backward if row["cell"] == cell]
            draw_states_over_steps(states, top, limits=(0.8 * min(r["size"] for r in forward), 1.3))
            draw_gradients_over_distance(gradients, middle, limits=gradient_limits(backward))
            top.set_title(cell, fontweight="bold")
            low, high, masked = span(backward, cell)
            bottom = "0" if masked.nonpositive else power(low)
            middle.set_title(f"at $d$ = {far}:\n{bottom} to {power(high)}", fontsize=7)
            for ax in (top, middle):
                ax.tick_params(labelleft=cell == DRAWN[0])
        tops[0].set_ylabel("hidden unit, rms")
        middles[0].set_ylabel(r"gradient $\|\partial L_T / \partial h_{T-d}\|$")
        for k, family in enumerate(("RNN", "LSTM")):
            ax = figure.add_subplot(grid[2, 2 * k : 2 * k + 2])
            draw_growth_rates([row for row in rates if family in row["cell"]], ax)
            ax.set_xlabel(r"scale $\delta$ of the recurrent weight")
            ax.set_title(rate_finding(rates, family), fontsize=7)
            if k == 0:
                ax.set_ylabel("gradient: powers of 10\nin 100 steps")
    return figure


def gradient_limits(backward: Sequence[Row]) -> tuple[float, float]:
    """Return the limits of a log axis for all gradients that it can show, with a margin of 4 %."""
    shown = [row["gradient"] for row in backward if row["gradient"] and row["gradient"] > 0]
    low, high = math.log10(min(shown)), math.log10(max(shown))
    margin = 0.04 * (high - low)
    return 10 ** max(low - margin, -307), 10 ** min(high + margin, 300)


def rate_finding(rates: Sequence[Row], family: str) -> str:
    """Say in one line over which slopes a cell goes as W_h is scaled, with the norm and without."""
    (low, high), (least, most) = (rate_range(rates, name) for name in (family, f"LN-{family}"))
    text = f"{family}: {low:.0f} to {high:+.0f};  LN-{family}: {least:+.1f} to {most:+.1f}"
    return text.replace("-", "−").replace("LN−", "LN-")


def rate_range(rates: Sequence[Row], cell: str) -> tuple[float, float]:
    """Return the smallest and largest slope over scales, each the mean over seeds."""
    means = [mean for _, mean, _ in mean_rates(rates, cell)]
    return min(means), max(means)


def mean_rates(rates: Sequence[Row], cell: str) -> list[tuple[float, float, float]]:
    """Return (scale, mean slope, standard error over seeds) of a cell, where all seeds have a slope."""
    found = []
    for scale in sorted({row["scale"] for row in rates}):
        mine = [row["rate"] for row in rates if (row["cell"], row["scale"]) == (cell, scale)]
        if all(value is not None and math.isfinite(value) for value in mine):
            found.append((scale, *mean_and_error(mine)))
    return found


def write(options: Options) -> list[Path]:
    """Write hidden_state_stability.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", vars(found))
    write_text(
        f"{stem}.md",
        f"# Recurrent states and gradients over many steps\n\n{CAPTION.format(**found.runs)}\n\n"
        f"{table(found)}\n\n{explain(found)}",
    )
    return [
        Path(f"{stem}.json"),
        Path(f"{stem}.md"),
        *save_figure(draw(found.forward, found.backward, found.rates), stem),
    ]


def table(found: Findings) -> str:
    """Return the slopes of every cell at every scale."""
    scales = sorted({row["scale"] for row in found.rates})
    lines = []
    for name in CELLS:
        rates = {
            scale: f"{signed(mean)} ± {error:.2f}" for scale, mean, error in mean_rates(found.rates, name)
        }
        lines.append([name, *(rates.get(scale, "underflow") for scale in scales)])
    return to_markdown(["powers of ten in 100 steps", *(f"δ = {scale:g}" for scale in scales)], lines)


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    (least, most), (small, large) = rate_range(found.rates, "LN-LSTM"), rate_range(found.rates, "LN-RNN")
    tenth = rate_range(found.rates, "LN-LSTM, gain 0.1")
    at_1 = {cell: m for cell in CELLS for s, m, _ in mean_rates(found.rates, cell) if s == 1}
    theory = layer_norm_rnn_rate(1.0, found.runs["hidden"], 1.0)
    states = [r["size"] for r in found.forward if r["cell"] == "LN-LSTM" and r["step"] == found.runs["steps"]]
    gaps = theory_gaps(found.rates)
    return f"""\
* {spans(found.backward)}
* The LN-LSTM's function does not change when W_h is scaled (up to eps): its slopes stay within
  {signed(least)} to {signed(most)} powers of ten in 100 steps, a hidden unit at the last step within
  {min(states):.3f} to {max(states):.3f}.
* **Beside the paper.** The paper (section 3.1) says that the norm makes the hidden dynamics much more
  stable. It takes the scale of W_h out of them, not the growth itself. The LN-RNN's slope at δ = 1 is
  {signed(at_1["LN-RNN"])}: its gradient {"explodes" if at_1["LN-RNN"] > 0 else "vanishes"}. Mean-field theory
  has {signed(theory)}; above 0 it is chaos, for gain 1 and inputs that are weak beside W_h h. Over δ the
  slope goes from {signed(small)} to {signed(large)}; that of the RNN at δ = 1 is {signed(at_1["RNN"])}.
* With initial gain 0.1, slopes of the LN-LSTM are {signed(tenth[0])} to {signed(tenth[1])}, and that of the
  LN-RNN at δ = 1 is {signed(at_1["LN-RNN, gain 0.1"])}.
* Mean-field theory of the RNNs, which has no free parameter, is within {max(gaps):.2f} of the measured slopes
  (median {np.median(gaps):.2f}). There is none here for the LSTMs."""


def spans(backward: Sequence[Row]) -> str:
    """Say over which gradients each cell goes, and what a log axis does not show of them."""
    far, parts = max(row["distance"] for row in backward), []
    for cell in DRAWN:
        low, high, masked = span(backward, cell)
        note = f" (and {masked})" if str(masked) else ""
        parts.append(f"{cell} {power(low)} to {power(high)}{note}")
    return f"Gradient {far} steps back, over the scales drawn and all seeds: {'; '.join(parts)}."


def theory_gaps(rates: Sequence[Row]) -> list[float]:
    """Return how far measured slopes are from theory, where there is one."""
    theory = {(row["cell"], row["scale"]): row["theory"] for row in rates}
    return [
        abs(mean - theory[cell, scale])
        for cell in CELLS
        for scale, mean, _ in mean_rates(rates, cell)
        if theory[cell, scale] is not None
    ]
