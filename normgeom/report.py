"""Tables as Markdown, LaTeX and JSON, and files that are never half-written."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pandas as pd

WHOLE = 10  # letters of a name that are kept on one line of a table, however narrow


def to_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is aligned left, the others are centred.

    >>> print(to_markdown(["norm", "holds"], [["layer", "yes"]]))
    | norm  | holds |
    | :---- | :---: |
    | layer |  yes  |
    """
    cells = [[str(c).replace("|", r"\|") for c in row] for row in (header, *rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    lines = [
        "| "
        + " | ".join(
            c.ljust(w) if k == 0 else c.center(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in cells
    ]
    rule = (
        "| "
        + " | ".join(
            ":" + "-" * (w - 1) if k == 0 else ":" + "-" * (w - 2) + ":" for k, w in enumerate(widths)
        )
        + " |"
    )
    return "\n".join([lines[0], rule, *lines[1:]])


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Any:
    """Return a rich table for a console of this width, headings wrapped, that reads without colour too."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    longest = max((len(word) for row in rows for word in str(row[0]).split()), default=1)
    for k, name in enumerate(header):
        lines = name.replace("re-", "re-\n") if width < 15 * len(header) else name.replace(" re-", "\nre-")
        least = min(longest, WHOLE) if k == 0 else None
        table.add_column(lines, justify="left" if k == 0 else "center", overflow="fold", min_width=least)
    styles = {"✓": "green", "≈": "cyan", "✗": "red", "?": "yellow"}
    for row in rows:
        table.add_row(*(Text(c, style=styles.get(c[:1], "")) for c in map(str, row)))
    return table


def to_text(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return a table as plain text, headings wrapped, of this width if one is given."""
    import io

    from rich.console import Console

    width = width or max(110, 16 * len(header))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(text_table(header, rows, width))
    return str(console.file.getvalue()).rstrip("\n")  # type: ignore[attr-defined]


def to_latex(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    label: str = "",
    width: float | None = None,
) -> str:
    r"""Return a LaTeX table with booktabs rules; text is escaped, cells in `$...$` are not.

    `width` is that of every column but the first, as a share of the text's.

    >>> [line for line in to_latex(["norm", "holds"], [["layer", "yes"]]).splitlines() if "rule" in line]
    ['\\toprule', '\\midrule', '\\bottomrule']
    """
    frame = pd.DataFrame([[_escape(c) for c in row] for row in rows], columns=[_escape(h) for h in header])
    wide = len(header) > 7
    width = width or (0.78 if wide else 0.7) / max(len(header) - 1, 1)
    columns = "l" + rf"p{{{width:.3f}\textwidth}}" * (len(header) - 1)
    source = frame.style.hide(axis="index").to_latex(
        hrules=True, column_format=columns, caption=_escape(caption) or None, label=label or None
    )
    size = r"\scriptsize\setlength{\tabcolsep}{2pt}" if wide else r"\small\setlength{\tabcolsep}{4pt}"
    return str(source).replace(r"\begin{tabular}", size + "\n" + r"\begin{tabular}")


TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "|": "$|$", "^": r"\^{}",
    "<": "$<$", ">": "$>$", "∝": r"$\propto$", "δ": r"$\delta$", "ε": r"$\epsilon$", "√": r"$\surd$",
    "→": r"$\to$", "²": "$^2$", "×": r"$\times$", "≈": r"$\approx$", "–": "--", "·": r"$\cdot$",
}  # fmt: skip


def _escape(text: str) -> str:
    """Escape LaTeX's special characters outside of formulas, and spell out symbols."""
    return text if text.startswith("$") and text.endswith("$") else "".join(TEX.get(c, c) for c in text)


@contextmanager
def atomic(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that appears under its name only when it is whole and on the disk; an error leaves none."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically, with a newline at its end."""
    with atomic(path) as file:
        file.write(text.rstrip("\n") + "\n")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write JSON atomically; numbers that are not finite become null."""
    write_text(path, json.dumps(plain(value), indent=1, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Return nested dicts and lists with numbers that are not finite as None."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not (value == value and abs(value) != float("inf")):
        return None
    return value
