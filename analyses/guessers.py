"""Which tensors have a length that the function does not see: what the field guesses, against the map."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import normgeom as ng
from analyses._guesses import DELTA, adamp_view, by_axes, by_name, minibatch_gradients
from analyses._run import Options
from analyses._runs import with_progress
from analyses._subjects import Subject, subjects
from normgeom.figures import COLOURS, save_figure, style
from normgeom.report import to_latex, to_markdown, write_json, write_text

COSINE, AXES, NAME = "cosine rule", "two or more axes", "no norm or bias in the name"
GUESSERS = (COSINE, AXES, NAME)
CAPTION = "Tensors wrongly taken as scale invariant, and wrongly not, by what the field guesses"


@dataclass(frozen=True)
class Findings:
    """A row for every model and guesser, every tensor's guesses, and what was left out."""

    rows: list[dict[str, Any]]
    tensors: list[dict[str, Any]]
    left_out: str


def compute(options: Options) -> Findings:
    """Scan every model, ask every guesser about every tensor, and count what is wrong."""
    found, left_out = subjects(options)
    count = 3 if options.quick else 50 if options.full else 20
    rows, tensors = [], []
    for subject in with_progress(found, "guessers"):
        own = guesses(subject, count, options)
        tensors += own
        rows += [counted(subject, own, guesser) for guesser in GUESSERS]
    return Findings(rows, tensors, left_out)


def guesses(subject: Subject, count: int, options: Options) -> list[dict[str, Any]]:
    """Return for every tensor that matters what the map says and how often each guesser says `free`."""
    found = subject.scan()
    seen = minibatch_gradients(subject, count, options.generator())
    groups = {group["kind"]: group["names"] for group in found.param_groups(weight_decay=0.1)}
    rows = []
    for name, value in found.parameters.items():
        free = free_views(found, name, value)
        if free is None:
            continue
        views = [adamp_view(*step[name]) for step in seen if name in step]
        row = {
            "model": subject.name,
            "tensor": name,
            "alone": bool(free),
            "together": not free and name in groups.get("scale-free", ()),
            "minibatches": len(views),
            "taken": sum(view is not None for view in views),
            "wrongly": sum(view not in free for view in views if view),
        }
        rows.append({**row, AXES: by_axes(value), NAME: by_name(name)})
    return rows


def free_views(found: ng.SymmetryMap, name: str, value: Tensor) -> set[str] | None:
    """Return in which of AdamP's views the map says that a tensor is free; None if it is dead.

    A tensor that the map sees in pieces (query, key and value in one) is free where all pieces are.
    """
    pieces = [one for one in found.blocks if one.parameter == name]
    if all(one.dead for one in pieces):
        return None
    by_channel = [
        part
        for one in pieces
        for part in one.parts
        if part.move is ng.Move.SCALE and part.labels[0].startswith(f"{name}[0")
        and len(part.free) + len(part.unused) == part.count == len(value)
    ]  # fmt: skip
    free = {"layer"} if all(one.scale.holds for one in pieces) else set()
    return free | ({"channel"} if by_channel else set())


def counted(subject: Subject, own: Sequence[dict[str, Any]], guesser: str) -> dict[str, Any]:
    """Return false positives and negatives of a guesser; of the cosine rule, means over minibatches."""
    free = [row for row in own if row["alone"] or row["together"]]
    if guesser == COSINE:
        wrong = sum(row["wrongly"] / row["minibatches"] for row in own)
        missed = sum(1 - row["taken"] / row["minibatches"] for row in free)
    else:
        wrong = float(sum(row[guesser] and not row["alone"] for row in own))
        missed = float(sum(not row[guesser] for row in free))
    return {
        "model": subject.name,
        "source": subject.source,
        "guesser": guesser,
        "tensors": len(own),
        "matrices": sum(row[AXES] and not row["alone"] for row in own),
        "alone": sum(row["alone"] for row in own),
        "together": sum(row["together"] for row in own),
        "false positives": wrong,
        "false negatives": missed,
        "ever wrong": sum(row["wrongly"] > 0 for row in own) if guesser == COSINE else wrong,
    }


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw false positives and negatives of every guesser, as parts of those that could be."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    small: dict[str, Any] = {"axes__titlesize": 7, "axes__labelsize": 7}
    with style(height=1.1 + 0.15 * len(models), xtick__labelsize=6.5, ytick__labelsize=6.5, **small):
        figure, axes = plt.subplots(1, 2, sharey=True)
        for ax, (kind, among) in zip(axes, AMONG.items(), strict=True):
            _draw_shares(rows, models, kind, ax)
            ax.set_xlabel(f"{kind}\n(of {among})", labelpad=1)
        axes[0].set_yticks(range(len(models)), [SHORT.get(model, model) for model in models])
        axes[0].set_ylim(len(models) - 0.5, -0.5)
        handles = axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=6.5, frameon=False)
        figure.suptitle(_title(rows), fontsize=7.5)
    return figure


LOOKS = ((COSINE, "o", COLOURS[0], -0.25), (AXES, "s", COLOURS[3], 0.0), (NAME, "^", COLOURS[2], 0.25))
AMONG = {"false positives": "tensors that are not free by themselves",
         "false negatives": "tensors that are free, alone or together"}  # fmt: skip
SHORT = {"RMSNorm, normalized queries and keys": "RMSNorm, QK norm",
         "pre-LN without biases, relu": "pre-LN, relu"}  # fmt: skip


def _draw_shares(rows: Sequence[dict[str, Any]], models: Sequence[str], kind: str, ax: Axes) -> None:
    """A mark for every guesser and model, and a word where nothing could be wrong."""
    for guesser, marker, colour, offset in LOOKS:
        own = [row for row in rows if row["guesser"] == guesser and possible(row, kind)]
        shares = [row[kind] / possible(row, kind) for row in own]
        spots = [models.index(row["model"]) + offset for row in own]
        look: dict[str, Any] = {"ms": 3.2, "mew": 0.8, "mfc": "none", "clip_on": False}
        ax.plot(shares, spots, marker, color=colour, label=guesser, **look)
    for row in rows:
        if not possible(row, kind):
            ax.text(0.02, models.index(row["model"]), "none", size=6, va="center", color="0.4")
    for edge in range(1, len(models)):
        ax.axhline(edge - 0.5, color="0.9", lw=0.5, zorder=0)
    ax.set_xlim(-0.02, 1.02)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])


def possible(row: dict[str, Any], kind: str) -> int:
    """Return how many false positives or negatives there could be."""
    free = row["alone"] + row["together"]
    return int(row["tensors"] - row["alone"] if kind == "false positives" else free)


def total(rows: Sequence[dict[str, Any]], guesser: str, kind: str) -> tuple[float, int]:
    """Return the sum over models, and how many there could be."""
    own = [row for row in rows if row["guesser"] == guesser]
    return sum(row[kind] for row in own), sum(possible(row, kind) for row in own)


def _title(rows: Sequence[dict[str, Any]]) -> str:
    (axes, most), (name, _), (cosine, _) = (total(rows, g, "false positives") for g in (AXES, NAME, COSINE))
    missed, free = total(rows, COSINE, "false negatives")
    return (
        "Whether a tensor can be rescaled is not read off its shape, its name or a cosine.\n"
        f"Of {most} that cannot, {axes:.0f} are taken by axes, {name:.0f} by names, {cosine:.0f} a step "
        f"by the cosine,\nwhich misses {missed:.0f} of {free} that can, alone or together"
    )


def table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row for every model, and one for all."""
    kinds = {"false positives": "false +", "false negatives": "false −"}
    header = ["model", "tensors", "free alone", "free together"]
    header += [f"{guesser}: {sign}" for guesser in (COSINE, "axes", "names") for sign in kinds.values()]
    cells = []
    for model in [*dict.fromkeys(row["model"] for row in rows), "all"]:
        own = [row for row in rows if model in ("all", row["model"])]
        first = [row for row in own if row["guesser"] == COSINE]
        counts = [total(own, guesser, kind)[0] for guesser in GUESSERS for kind in kinds]
        sizes = [sum(row[key] for row in first) for key in ("tensors", "alone", "together")]
        cells.append([model, *map(str, sizes), *(f"{count:.3g}" for count in counts)])
    return header, cells


def write(options: Options) -> list[Path]:
    """Write guessers.{json,md,tex,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", {"rows": found.rows, "tensors": found.tensors, "left out": found.left_out})
    write_text(f"{stem}.md", f"# What the field guesses\n\n{explain(found)}")
    header, cells = table(found.rows)
    plain = [name.replace("−", "$-$").replace(" $-$", " -") for name in header]
    write_text(f"{stem}.tex", to_latex(plain, cells, caption=CAPTION, label="tab:guessers"))
    texts = [Path(f"{stem}.{kind}") for kind in ("json", "md", "tex")]
    return [*texts, *save_figure(draw(found.rows), stem)]


def explain(found: Findings) -> str:
    """Say what was asked, and what the numbers show."""
    rows, count = found.rows, max(row["minibatches"] for row in found.tensors)
    first = [row for row in rows if row["guesser"] == COSINE]
    names = ("ever wrong", "matrices", "alone", "together")
    ever, matrices, alone, together = (sum(row[key] for row in first) for key in names)
    wrong = {guesser: total(rows, guesser, "false positives")[0] for guesser in GUESSERS}
    missed = {guesser: total(rows, guesser, "false negatives")[0] for guesser in GUESSERS}
    return f"""\
For every parameter tensor on which the outputs depend: can it be rescaled without a change of the function,
alone, or together with others by one factor? The map (`ng.scan`) decides that on the function. Guessed is

* **{COSINE}**: `|cos(w, ∇)| < {DELTA}/√dim` on a minibatch's gradient, for all slices along the first axis,
  or else for the whole tensor (AdamP, Heo et al. 2021); asked at {count} minibatches of a short
  training in float32. Counts are means over these. Vectors are not asked about.
* **{AXES}**: every matrix decays, no vector does (A. Karpathy's GPT, and many after it).
* **{NAME}**: decay by names (as in BERT's training, and many after it).

A *false positive* is taken for free and is not free by itself: there decay, or a projection of the step,
changes the function. A *false negative* is free, alone or together, and not taken.

{to_markdown(*table(rows))}

* At a step the cosine rule takes {wrong[COSINE]:.1f} of the {matrices} matrices that are not free by
  themselves ({wrong[COSINE] / matrices:.1%}), and {ever} of them at one of {count} steps or more: a random
  direction passes `{DELTA}/√dim` 8 % of the time. It finds those that are free alone ({alone}), and of the
  {alone + together} that are free alone or together it misses {missed[COSINE]:.0f}.
* Axes are wrong on {wrong[AXES]:.0f} and miss {missed[AXES]:.0f}; names are wrong on {wrong[NAME]:.0f} and
  miss {missed[NAME]:.0f}.
* No rule knows of joint symmetries: in pre-LN transformers without normalized queries and keys no
  matrix is free by itself.

{found.left_out}"""
