"""The log of a run: a row a step, as CSV, and on request as Parquet and for TensorBoard."""

import csv
import dataclasses
import importlib.util
import os
from pathlib import Path
from typing import Any

import pandas as pd

from normgeom.report import atomic, write_text
from normgeom.training.loop import StepRecord

COLUMNS = tuple(field.name for field in dataclasses.fields(StepRecord))


def begin_log(path: Path) -> None:
    """Write a log without rows."""
    write_text(path, ",".join(COLUMNS))


def cut_log(path: Path, size: int) -> None:
    """Cut off the rows that were written after a checkpoint, at which the log had this size in bytes.

    Raises:
        ValueError: if the log is shorter than that.
    """
    there = path.stat().st_size if path.is_file() else 0
    if there < size:
        raise ValueError(
            f"{path} must have the {size} bytes that it had at the checkpoint; it has {there}. Restore it, "
            "or overwrite the run."
        )
    os.truncate(path, size)


def synced_size(path: Path) -> int:
    """Return the size of a log in bytes, once all of it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path.stat().st_size


class CsvLog:
    """Rows appended to a file, one a step, each on its own line as soon as its step is over.

    What is measured in seconds is not in it: two runs of the same steps write the same bytes.
    """

    def __init__(self, path: Path) -> None:
        """Open a log that `begin_log` or `cut_log` has left ready."""
        self._file = path.open("a", encoding="utf-8", newline="", buffering=1)
        self._writer = csv.writer(self._file, lineterminator="\n")

    def write(self, record: StepRecord) -> None:
        """Append a row; numbers are written so that they read back exactly."""
        self._writer.writerow(["" if v is None else repr(v) for v in dataclasses.astuple(record)])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardLog:
    """The same rows as scalars for TensorBoard, in the folder `tensorboard` of the run."""

    def __init__(self, folder: Path, *, step: int) -> None:
        """Begin at a step; what TensorBoard has beyond it is left out of its plots."""
        require("tensorboard", option="tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, record: StepRecord) -> None:
        """Add the numbers of a step."""
        for name, value in dataclasses.asdict(record).items():
            if name != "step" and value is not None:
                self._writer.add_scalar(name, value, record.step)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def read_log(folder: str | Path) -> pd.DataFrame:
    """Return the log of the run in a folder, a row a step; what a step did not measure is NaN.

    Raises:
        FileNotFoundError: if there is no log in the folder.
    """
    path = Path(folder) / "log.csv"
    if not path.is_file():
        raise FileNotFoundError(f"no run in {folder}: there is no {path}.")
    with path.open(encoding="utf-8", newline="") as file:
        whole = (line for line in file if line.endswith("\n"))  # a kill may leave half a row at the end
        rows = list(csv.DictReader(whole))
    # float() reads back the very number that was written; pandas' own parser need not.
    columns = {name: [float(row[name] or "nan") for row in rows] for name in COLUMNS}
    return pd.DataFrame(columns, columns=COLUMNS, dtype="float64").astype({"step": "int64"})


def write_parquet(folder: str | Path) -> Path:
    """Write `log.parquet` with the rows of `log.csv`, atomically."""
    path = Path(folder) / "log.parquet"
    with atomic(path, "wb") as file:
        read_log(folder).to_parquet(file, engine="pyarrow", index=False)
    return path


def require(package: str, *, option: str) -> None:
    """Raise an error that names the extra, if a package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"{option} needs the package {package}, which is not installed: pip install 'normgeom[{option}]'."
        )
