"""The figure of `effective_lr_lstm`: a column for each cell and optimizer, a row for each quantity."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analyses._language_model import BLOCKS, geometric_mean
from normgeom.figures import SCALE_COLOURS, draw_against_norm, draw_band, draw_power, style

SCALES = (0.25, 1.0, 4.0)
NAMES = {0.25: "W₀/4", 1.0: "W₀", 4.0: "4W₀"}
PANELS = (("LN-LSTM", "SGD", 1.0), ("LN-LSTM", "Adam", 0.003), ("LSTM", "SGD", 1.0))
THEORY = {"SGD": -2, "Adam": -1}


def of_panel(rows: Sequence[dict[str, Any]], panel: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return the rows of one cell and optimizer."""
    return [row for row in rows if (row["cell"], row["optimizer"]) == panel[:2]]


def draw(
    rows: Sequence[dict[str, Any]], rescaled: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]]
) -> Figure:
    """Draw a column for each panel: bits, lengths, effective rate, angle; and rate and angle over length."""
    small: dict[str, Any] = {
        "axes__titlesize": 7.5,
        "axes__labelsize": 7,
        "xtick__labelsize": 6,
        "ytick__labelsize": 6,
    }
    with style(height=7.2, **small):
        figure, grid = plt.subplots(5, 3, sharex="row", sharey="row")
        for column, (panel, said) in enumerate(zip(PANELS, summary, strict=True)):
            mine = of_panel(rows, panel)
            _draw_curves(mine, grid[:4, column])
            recurrent = [row for row in mine if row["block"] == "W_h"]
            _draw_lengths(recurrent, of_panel(rescaled, panel), said, grid[4, column])
            cell = "LN-LSTM" if panel[0] == "LN-LSTM" else "plain LSTM"
            grid[0, column].set_title(f"{cell}, {panel[1]} (η = {panel[2]:g})")
        _name_axes(grid)
        _annotate(grid, summary)
        fell = [1 / said["rate at W₀/4"] for said in summary]
        figure.suptitle(
            "As the weights of a layer-normalized LSTM grow, its effective learning rate falls:\n"
            f"begun at W₀/4, {fell[0]:.0f}-fold with SGD and {fell[1]:.1f}-fold with Adam; "
            "the angle of a step falls too, mostly early",
            fontsize=7.5,
        )
    return figure


def _draw_curves(rows: Sequence[dict[str, Any]], axes: Sequence[Axes]) -> None:
    """Everything against the step."""
    for colour, scale in zip(SCALE_COLOURS, SCALES, strict=True):
        own = {b: [r for r in rows if (r["scale"], r["block"]) == (scale, b)] for b in BLOCKS}
        columns = ("bits", "norm", "effective_learning_rate", "angular_update")
        for ax, y in zip(axes, columns, strict=True):
            draw_band(own["W_h"], ax, x="step", y=y, colour=colour)
        draw_band(own["W_x"], axes[1], x="step", y="norm", colour=colour, line=":")
        if rows[0]["cell"] == "LN-LSTM":
            steps = sorted({r["step"] for r in own["W_h"]})
            said = [geometric_mean(r["predicted"] for r in own["W_h"] if r["step"] == t) for t in steps]
            axes[3].plot(steps, said, "--", color="black", lw=0.7)


def _draw_lengths(
    rows: Sequence[dict[str, Any]], rescaled: Sequence[dict[str, Any]], said: dict[str, Any], ax: Axes
) -> None:
    """Rate in training, and angle of one step from rescaled weights, over the length, with theory's lines."""
    draw_against_norm(rows, ax, y="effective_learning_rate")
    lengths, tangents = [r["norm"] for r in rescaled], [r["tangent"] for r in rescaled]
    ax.plot(lengths, tangents, "D", ms=3.2, mew=0.7, color="#777777", mfc="white")
    normalized, exponent = said["cell"] == "LN-LSTM", THEORY[said["optimizer"]]
    for points, y in ((rows, "effective_learning_rate"), (rescaled, "tangent")):
        if y == "tangent" and not normalized:
            continue
        x = [r["norm"] for r in points]
        middle = geometric_mean(x), geometric_mean(r[y] for r in points)
        draw_power(ax, through=middle, exponent=float(exponent), ends=(min(x), max(x)))
    law = "η/‖W‖²" if exponent == -2 else "η/‖W‖"
    text = f"● {law}: slope {said['slope of rate']:.2f}\n◇ measured: slope {said['slope of rescaled']:.2f}"
    if not normalized:
        text = f"◇ no law: at 8‖W‖ tan ∠ is\n× {said['8 times as long']:.0f}, and not ÷ 64"
    # where no point comes: without norms the angles rise to the right
    place, side = (0.97, "right") if normalized else (0.03, "left")
    ax.text(place, 0.97, text.replace("-", "−"), transform=ax.transAxes, size=6, va="top", ha=side)


def _name_axes(grid: Any) -> None:
    """Name axes, with ticks that can be read."""
    names = ("bits per character", "length", "effective\nlearning rate", "angle of a step (rad)")
    for ax, name in zip(grid[:4, 0], names, strict=True):
        ax.set_ylabel(name)
    grid[4, 0].set_ylabel("● effective rate\n◇ tan ∠ of one step")
    for row in grid[:3]:
        for ax in row:
            ax.tick_params(labelbottom=False)
    for ax in grid[3]:
        ax.set_xlabel("step", labelpad=1)
    for ax in grid[4]:
        ax.set_xlabel(r"$\|W_h\|$ (◇ rescaled)", labelpad=1)
    for ax, ticks in ((grid[0, 0], (2.5, 3, 4, 5)), (grid[1, 0], (2, 5, 10, 20, 40))):
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    grid[3, 0].set_ylim(top=15)
    grid[4, 0].set_ylim(top=grid[4, 0].get_ylim()[1] * 30)


def _annotate(grid: Any, summary: Sequence[dict[str, Any]]) -> None:
    """Name curves, and say what each panel shows."""
    where = {"size": 6, "bbox": {"fc": "white", "ec": "none", "alpha": 0.7, "pad": 0.5}}
    for colour, name, height in zip(SCALE_COLOURS, NAMES.values(), (0.32, 0.19, 0.06), strict=True):
        ax = grid[0, 0]
        ax.text(0.05, height, name, color=colour, size=7, transform=ax.transAxes, weight="bold")
    ax = grid[1, 0]
    ax.text(0.04, 0.82, r"— $\|W_h\|$   ··· $\|W_x\|$", transform=ax.transAxes, va="top", **where)
    rates = (r"$\eta/\|W_h\|^2$", r"$\eta/\|W_h\|$", r"$\eta/\|W_h\|^2$: not a rate here,"
             "\nthe length itself matters")  # fmt: skip
    for ax, text, height in zip(grid[2], rates, (0.04, 0.92, 0.04), strict=True):
        ax.text(0.03, height, text, transform=ax.transAxes, va="bottom" if height < 0.5 else "top", **where)
    for ax, said in zip(grid[3], summary, strict=True):
        rate, angle = (said[f"{what} at W₀/4"] for what in ("rate", "angle"))
        line = (
            "– – rate × gradient at unit length"
            if said["optimizer"] == "SGD"
            else "– – independent gradients"
        )
        text = f"W₀/4: rate {times(rate)}, angle {times(angle)}"
        text = text if said["cell"] == "LSTM" else f"{line}\n{text}"
        ax.text(0.98, 0.99, text, transform=ax.transAxes, ha="right", va="top", **where)


def times(factor: float) -> str:
    """Say a factor, `× 2` or `÷ 2`."""
    return f"× {factor:.2g}" if factor > 1 else f"÷ {1 / factor:.2g}"
