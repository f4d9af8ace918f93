"""The zoo as text: Markdown with every formula, source and witness, and LaTeX for a paper."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from normgeom.report import to_latex, to_markdown

CAPTION = (
    "Table 1 for {count} layers. Invariant: for every eps. Up to eps: exactly at eps = 0; with an eps, "
    "re-scaling by δ does what the eps law's change of eps does. ∝δ: the outputs scale, at eps = 0. Conv: "
    "filters and images without padding, re-centered by a filter and by a constant a channel. Scales δ > 0; "
    "statistics from the data unless the mode is eval. Engines that must agree decide every cell; every No "
    "has a witness."
)
FINE = (
    "What a yes or no hides. Joint symmetries: transforms of weight and options together that leave the "
    "outputs unchanged at eps = 0. Gradient: transforms whose gradient identity holds though the function "
    "changes, or fails though it does not."
)
FINE_HEADER = ["layer", "joint symmetries", "gradient identities"]
LAWS = {2: "ε → ε/δ²", 1: "ε → ε/δ", None: "–"}


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the big table, the layers' formulas and sources, and how every cell was decided."""
    titles = [c["title"] for c in rows[0]["cells"]]
    header = ["layer", "family", *titles, "eps law", "mode", "joint symmetries", "gradient identities"]
    table = [
        [
            row["layer"], row["family"], *map(label, row["cells"]), LAWS[row["eps_power"]], row["mode"],
            "; ".join(s["text"] for s in row["joint"]) or "–", gradient(row),
        ]
        for row in rows
    ]  # fmt: skip
    about = [[row["layer"], f"${row['latex']}$", row["source"]] for row in rows]
    decided = [[row["layer"], *(", ".join(c["engines"]) for c in row["cells"])] for row in rows]
    return "\n\n".join(
        [
            "# The zoo", CAPTION.format(count=len(rows)), FINE, to_markdown(header, table),
            "## Formulas and sources", to_markdown(["layer", "formula", "source"], about),
            "## Engines", to_markdown(["layer", *titles], decided),
            "## Witnesses", *_witnesses(rows),
        ]
    )  # fmt: skip


def _witnesses(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The point at which each No is seen."""
    return [
        f"**{row['layer']}, {c['title']}**\n\n```text\n{c['witness']}\n```"
        for row in rows
        for c in row["cells"]
        if c["witness"]
    ]


def latex(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table, and one of the fine print for the layers that have some."""
    titles = [c["title"] for c in rows[0]["cells"]]
    table = [
        [row["layer"], *map(_formula, row["cells"]), LAWS[row["eps_power"]], row["mode"]] for row in rows
    ]
    fine = [
        [row["layer"], _joint(row), gradient(row)] for row in rows if row["joint"] or gradient(row) != "–"
    ]
    header = ["layer", *titles, "eps law", "mode"]
    first = to_latex(header, table, caption=CAPTION.format(count=len(rows)), label="tab:zoo", width=0.085)
    second = to_latex(FINE_HEADER, fine, caption=FINE, label="tab:zoo-fine")
    return first.replace(r"\scriptsize", r"\tiny") + "\n" + second


def _joint(row: dict[str, Any]) -> str:
    """The joint symmetries of a layer as one formula."""
    formula = r",\ ".join(s["latex"] for s in row["joint"])
    return f"${formula}$" if formula else "–"


def label(cell: dict[str, Any]) -> str:
    """Return a cell's text."""
    if cell["kind"] != "not invariant":
        return {"invariant": "Invariant", "invariant up to eps": "up to eps"}.get(cell["kind"], "Undecided")
    if cell["degree"] is None:
        return "No"
    degree = Fraction(cell["degree"]).limit_denominator(8)
    return "No, ∝δ" if degree == 1 else f"No, ∝δ^{degree}"


def _formula(cell: dict[str, Any]) -> str:
    """Return a cell's text for LaTeX, a power as one formula."""
    text, hat, power = label(cell).partition("^")
    return rf"$\mbox{{No, }}\propto\delta^{{{power}}}$" if hat else text


def gradient(row: dict[str, Any]) -> str:
    """Return where the gradient identity and the function differ."""
    titles = {c["transform"]: c["title"] for c in row["cells"]}
    parts = [
        ("hold, not invariant", row["gradient_only"]),
        ("fail, though invariant", row["gradient_broken"]),
    ]
    return (
        "; ".join(f"{word}: {', '.join(titles[t] for t in names)}" for word, names in parts if names) or "–"
    )
