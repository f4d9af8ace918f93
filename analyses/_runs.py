"""The runs of an analysis, one by one: how far they are, and what an interrupted analysis had finished."""

import hashlib
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from analyses._run import Options
from normgeom.report import atomic

R = TypeVar("R")
T = TypeVar("T")
ROOT = Path(__file__).parents[1]


def with_progress(runs: Sequence[R], name: str) -> Iterator[R]:
    """Yield the runs; a line about every twenty seconds says how far it is."""
    start = last = time.monotonic()
    for k, run in enumerate(runs):
        yield run
        now = time.monotonic()
        if now - last > 20 and k + 1 < len(runs):
            left = (now - start) / (k + 1) * (len(runs) - k - 1)
            print(f"  {name}: {k + 1} of {len(runs)} runs, about {left:.0f} s left", file=sys.stderr)
            last = now


def finished(options: Options, name: str, runs: Sequence[R], make: Callable[[R], T]) -> Iterator[T]:
    """Yield what `make` gives for each run, from the disk where an interrupted analysis had made it.

    What is made is kept in `options.kept` until the analysis is written. It serves the same runs, with the
    same options, of the same code alone.
    """
    folder = None if options.kept is None else options.kept / _key(options, runs)
    made = [None if folder is None else folder / f"{k}.pickle" for k in range(len(runs))]
    there = [path for path in made if path is not None and path.exists()]
    if there:
        print(f"  {name}: {len(there)} of {len(runs)} runs are there from before", file=sys.stderr)
    left = [run for run, path in zip(runs, made, strict=True) if path not in there]
    coming = with_progress(left, name)
    for path in made:
        if path is not None and path in there:
            yield pickle.loads(path.read_bytes())
            continue
        found = make(next(coming))
        if path is not None:
            with atomic(path, "wb") as file:
                pickle.dump(found, file)
        yield found


def _key(options: Options, runs: Sequence[R]) -> str:
    """Name the runs, the options that they were made with, and the code."""
    what = (options.seed, options.device, options.quick, options.full, [repr(run) for run in runs], _code())
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    """Return a hash of all that could change a result."""
    files = sorted(path for part in ("analyses", "normgeom") for path in (ROOT / part).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
