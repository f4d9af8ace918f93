"""Rows and tables of verdicts; each prints itself and keeps its verdicts as cells."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from normgeom.invariance.verdict import Kind, Verdict
from normgeom.report import to_latex, to_markdown, to_text

MARKS = {
    Kind.INVARIANT: "✓ Invariant",
    Kind.UP_TO_EPS: "≈ Up to eps",
    Kind.NOT_INVARIANT: "✗ No",
    Kind.UNDECIDED: "? Undecided",
}


@dataclass(frozen=True, eq=False, repr=False)
class InvarianceRow:
    """The verdicts on one layer, in the order of the transforms.

    Iterates over verdicts; `row["CaseRescale"]`, `row[CaseRescale]` and `row[5]` give one. `remarks` say what
    else there is to know: sizes that the code compares, a division by n - 1, an input that is written into.
    """

    layer: str
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)

    def __getitem__(self, key: Any) -> Verdict:
        if isinstance(key, int):
            return self.verdicts[key]
        name = key if isinstance(key, str) else (key if isinstance(key, type) else type(key)).__name__
        for verdict in self.verdicts:
            if name in (verdict.transform, verdict.title):
                return verdict
        raise KeyError(f"no transform {name!r}; there are {', '.join(v.transform for v in self.verdicts)}.")

    def __repr__(self) -> str:
        return "\n".join([repr(InvarianceTable((self,))), *self.remarks])

    @property
    def holds(self) -> tuple[bool, ...]:
        """Which invariances hold, exactly or up to eps."""
        return tuple(v.holds for v in self.verdicts)


@dataclass(frozen=True, eq=False, repr=False)
class InvarianceTable:
    """Table 1: layers against transforms. `table["BatchNorm", "CaseRescale"]` is a verdict."""

    rows: tuple[InvarianceRow, ...]

    def __iter__(self) -> Iterator[InvarianceRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        name, *rest = key if isinstance(key, tuple) else (key,)
        if isinstance(name, int):
            row = self.rows[name]
        else:
            named = {r.layer: r for r in self.rows}
            if name not in named:
                raise KeyError(f"no layer {name!r}; there are {', '.join(named)}.")
            row = named[name]
        return row[rest[0]] if rest else row

    def __repr__(self) -> str:
        return to_text(self.header, self.cells())

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    @property
    def header(self) -> list[str]:
        """The column headings: Table 1's."""
        return ["", *(v.title or v.transform for v in self.rows[0])]

    def cells(self) -> list[list[str]]:
        """Return the rows as text: the layer's name, then a mark and a word for each verdict."""
        return [[row.layer, *(_cell(v) for v in row)] for row in self.rows]

    def to_markdown(self) -> str:
        """Return the table with check marks that also read as text."""
        return to_markdown(self.header, self.cells())

    def to_latex(self, *, caption: str = "", label: str = "tab:invariances") -> str:
        """Return the table as LaTeX; it needs the package booktabs."""
        rows = [
            [row.layer, *(v.label + (f", {v.scaling}" if v.scaling else "") for v in row)]
            for row in self.rows
        ]
        caption = caption or "Invariances of normalization layers, after Table 1 of Ba et al. (2016)."
        return to_latex(self.header, rows, caption=caption, label=label)

    def to_frame(self, field: str = "label") -> pd.DataFrame:
        """Return layers by transforms, each cell one field (`label`, `error`, ...) of its verdict."""
        cells = [[getattr(v, field) for v in row] for row in self.rows]
        return pd.DataFrame(cells, index=[r.layer for r in self.rows], columns=self.header[1:])

    def records(self) -> list[dict[str, Any]]:
        """Return one dict of plain values a cell: what a figure is drawn from."""
        return [v.as_row() for row in self.rows for v in row]

    def to_json(self) -> str:
        """Return all cells with their evidence."""
        return json.dumps(self.records(), indent=1, ensure_ascii=False)

    def proofs(self) -> str:
        """Return the evidence of every cell: the proof of an invariance, the witness of a No."""
        return "\n\n".join(str(v) for row in self.rows for v in row)


def _cell(verdict: Verdict) -> str:
    """A mark, the word, and what the paper's table leaves out."""
    size = f" {verdict.error:.0e}" if verdict.kind is Kind.UP_TO_EPS and verdict.error is not None else ""
    return MARKS[verdict.kind] + size + (f", {verdict.scaling}" if verdict.scaling else "")
