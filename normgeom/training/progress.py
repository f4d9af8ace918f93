"""A progress bar for a run, on a terminal."""

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from normgeom.training.loop import StepRecord


class RateColumn(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        """Return the rate of the last seconds, or nothing before there is one."""
        return Text(f"{task.speed:.1f} steps/s" if task.speed else "", style="progress.data.speed")


def with_progress_bar(
    records: Iterable[StepRecord], *, steps: int, console: Console | None = None
) -> Iterator[StepRecord]:
    """Yield the records of a run; meanwhile a terminal shows steps, rate, time left and bits.

    Args:
        records: what `train` returns.
        steps: the number of steps when the run ends.
        console: where to draw; standard error if not given. Nothing is drawn where it is no terminal.
    """
    console = Console(stderr=True) if console is None else console
    if not console.is_terminal:
        yield from records
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[bits]}"), RateColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task, held_out = bar.add_task("", total=steps, bits=""), ""
        for record in records:
            if record.held_out_bits is not None:
                held_out = f", held out {record.held_out_bits:.3f}"
            bar.update(task, completed=record.step, bits=f"{record.bits:.3f} bits{held_out}")
            yield record
