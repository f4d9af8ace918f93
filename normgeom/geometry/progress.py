"""A progress bar for runs that last."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def tracked(
    items: Iterable[Item], *, total: int | None, label: str, show: bool = True, after: float = 2.0
) -> Iterator[Item]:
    """Yield the items; on a terminal, show a bar once the loop has lasted `after` seconds."""
    bar, started = None, time.monotonic()
    try:
        for done, item in enumerate(items):
            if show and bar is None and time.monotonic() - started > after and sys.stderr.isatty():
                from rich.console import Console
                from rich.progress import Progress

                bar = Progress(console=Console(stderr=True), transient=True)
                bar.start()
                task = bar.add_task(label, total=total, completed=done)
            yield item
            if bar is not None:
                bar.advance(task)
    finally:
        if bar is not None:
            bar.stop()
