"""The symmetry map of each architecture: single and joint symmetries, and which kinds there are."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import normgeom as ng
from analyses._run import Options
from analyses._runs import with_progress
from analyses._subjects import subjects
from normgeom.figures import COLOURS, save_figure, style
from normgeom.report import to_markdown, write_json, write_text
from normgeom.symmetry.map import HEADER
from normgeom.symmetry.presented import joint_shown

SINGLE = ("matrices free alone", "vectors free alone", "dead")
SHIFTS = ("column sums", "row sums", "joint shift", "absorbed shift")


@dataclass(frozen=True)
class Findings:
    """The maps by name, and what was left out."""

    maps: dict[str, ng.SymmetryMap]
    left_out: str


def compute(options: Options) -> Findings:
    """Scan every architecture."""
    found, left_out = subjects(options)
    return Findings({s.name: s.scan() for s in with_progress(found, "symmetry_atlas")}, left_out)


def counts(name: str, found: ng.SymmetryMap) -> list[dict[str, Any]]:
    """Return how many symmetries of each kind an architecture has."""
    alive = [one for one in found.single if not one.dead]
    kinds = {
        "matrices free alone": sum(len(one.shape) > 1 for one in alive),
        "vectors free alone": sum(len(one.shape) < 2 for one in alive),
        "dead": len(found.dead),
        **Counter(one.rule.partition(":")[0] for one in found.joint),
        "column sums": sum(_shifts(one, ng.Move.SHIFT_UNITS) for one in found.blocks),
        "row sums": sum(_shifts(one, ng.Move.SHIFT_INPUTS) for one in found.blocks),
        "joint shift": len(found.joint_shifts),
        "absorbed shift": len(found.absorbed_shifts),
    }
    base = {"model": name, "blocks": len(found.blocks), "nullity": found.nullity}
    return [{**base, "symmetry": kind, "count": count} for kind, count in kinds.items()]


def _shifts(one: ng.BlockSymmetry, move: ng.Move) -> bool:
    return not one.dead and move in one.moves and one.moves[move].holds


def table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row for every architecture."""
    models, kinds = names(rows)
    cells = {(row["model"], row["symmetry"]): row["count"] for row in rows}
    sizes = {row["model"]: (row["blocks"], row["nullity"]) for row in rows}
    body = [
        [model, *map(str, sizes[model]), *(str(cells.get((model, kind)) or "") for kind in kinds)]
        for model in models
    ]
    return ["architecture", "blocks", "nullity", *kinds], body


def names(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return architectures in order, and the kinds that any has: those of one block, of several, shifts."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    there = Counter(row["symmetry"] for row in rows if row["count"])
    last = [kind for kind in SHIFTS if kind in there]
    first = [kind for kind in SINGLE if kind in there]
    joint = [kind for kind, _ in there.most_common() if kind not in (*first, *last)]
    return models, [*first, *joint, *last]


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw architectures against kinds of symmetries; a cell holds how many there are."""
    models, kinds = names(rows)
    with style(height=1.6 + 0.17 * len(models), xtick__labelsize=6.5, ytick__labelsize=6.5):
        figure, ax = plt.subplots()
        for row in rows:
            if row["count"]:
                _cell(ax, kinds.index(row["symmetry"]), models.index(row["model"]), row)
        _name_axes(ax, models, kinds, {row["model"]: row["nullity"] for row in rows})
        figure.suptitle(_title(rows), fontsize=7.5)
    return figure


def _title(rows: Sequence[dict[str, Any]]) -> str:
    """What is found, in numbers."""
    alone, jointly = set(), set()
    for row in rows:
        if row["count"] and row["symmetry"] == "matrices free alone":
            alone.add(row["model"])
        elif row["count"] and row["symmetry"] not in (*SINGLE, *SHIFTS):
            jointly.add(row["model"])
    models = names(rows)[0]
    return (
        f"In {len(models) - len(alone)} of {len(models)} architectures no weight matrix can be rescaled by "
        f"itself;\nin {len(jointly)} several blocks can be rescaled together"
    )


def _cell(ax: Axes, x: int, y: int, row: dict[str, Any]) -> None:
    kind = row["symmetry"]
    colour = "0.6" if kind == "dead" else COLOURS[2 if kind in SINGLE else 1 if kind in SHIFTS else 0]
    ax.add_patch(Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, fc=colour, alpha=0.4, lw=0))
    ax.text(x, y, str(row["count"]), ha="center", va="center", size=6.5)


def _name_axes(ax: Axes, models: Sequence[str], kinds: Sequence[str], nullities: dict[str, int]) -> None:
    ax.set_xticks(range(len(kinds)), kinds, rotation=60, ha="left", rotation_mode="anchor")
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(models)), [f"{model}  [{nullities[model]}]" for model in models])
    ax.tick_params(length=0)
    ax.set_xlim(-0.5, len(kinds) - 0.5)
    ax.set_ylim(len(models) - 0.5, -0.5)
    for edge in range(1, len(models)):
        ax.axhline(edge - 0.5, color="0.9", lw=0.5, zorder=0)
    singles, shifts = (sum(kind in these for kind in kinds) for these in (SINGLE, SHIFTS))
    for edge in (singles, len(kinds) - shifts):
        ax.axvline(edge - 0.5, color="0.3", lw=0.8)
    middle = (singles + len(kinds) - shifts) / 2
    for where, text in (
        (singles / 2, "one block"),
        (middle, "scaled together"),
        (len(kinds) - shifts / 2, "shifts"),
    ):
        ax.text(where - 0.5, len(models) - 0.35, text, ha="center", va="top", size=6.5)
    ax.text(-0.6, -0.7, "[nullity]", ha="right", va="bottom", size=6.5)


def write(options: Options) -> list[Path]:
    """Write symmetry_atlas.{json,md,pdf,png}, and one map as symmetry_atlas_map.{pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    rows = [row for name, one in found.maps.items() for row in counts(name, one)]
    maps = {name: _without_labels(one.to_dict()) for name, one in found.maps.items()}
    write_json(f"{stem}.json", {"rows": rows, "maps": maps, "left out": found.left_out})
    write_text(f"{stem}.md", explain(found, rows))
    texts = [Path(f"{stem}.json"), Path(f"{stem}.md")]
    drawn = "GPT-2" if "GPT-2" in found.maps else "pre-LN"
    return [
        *texts,
        *save_figure(draw(rows), stem),
        *save_figure(draw_map(found.maps[drawn], drawn), f"{stem}_map"),
    ]


def _without_labels(numbers: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a map without the name of every row of every block, which follows from its index."""
    for block in numbers["blocks"]:
        block["parts"] = [{k: v for k, v in part.items() if k != "labels"} for part in block["parts"]]
    return numbers


def draw_map(found: ng.SymmetryMap, name: str) -> Figure:
    """Draw one map: its blocks against its symmetries."""
    with style(height=4.2):
        ax = found.plot(plt.subplots()[1])
        title = f"{name}: {found.nullity} independent scalings, {len(found.dead)} of them without influence"
        ax.set_title(f"{title}\n{ax.get_title()}", fontsize=6.5)
    figure = ax.get_figure()
    assert isinstance(figure, Figure)
    return figure


def explain(found: Findings, rows: Sequence[dict[str, Any]]) -> str:
    """Return what was found, a section for every architecture."""
    sections = [f"## {name}\n\n{section(one)}" for name, one in found.maps.items()]
    text = f"""\
# An atlas of symmetries

`ng.scan(model, batch)` of small models with random weights. The first are written for this, in float64 with
eps 0; the others are built from the configurations of the transformers package (two layers; ResNet with the
depths of ResNet-50). How many symmetries of each kind there are; the nullity counts the independent scale
symmetries, single and joint. Column and row sums: blocks whose shift along all units, or all inputs, the
function does not see.

{to_markdown(*table(rows))}

In the sections: ✓ the outputs do not change, ≈ they change by what an eps makes, ✗ they change. `W + 1γᵀ`
shifts all units, `W + c1ᵀ` all inputs. A joint symmetry scales each block by `c` to its exponent, or shifts
it by so many times a common vector. Layers that repeat are told as one.

{found.left_out}"""
    return "\n\n".join([text.strip(), *sections])


def section(found: ng.SymmetryMap) -> str:
    """Return the map of one architecture: its table, its joint symmetries with the reason, its findings."""
    joint = found.together
    lines = [
        f"* {rule}: `{dataclasses.replace(joint[each.place], exponents=each.exponents).label}`; "
        f"{joint[each.place].why}"
        for rule, each in joint_shown(found, folded=True)
    ]
    return "\n\n".join(
        [to_markdown(HEADER, found.cells(folded=True)), "\n".join(lines), found.summary()]
    ).replace("\n\n\n\n", "\n\n")
