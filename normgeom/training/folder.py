"""The folder of a run: its log, its checkpoints, and what it is a run of."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from normgeom.processes import barrier, place
from normgeom.report import write_json
from normgeom.training.checkpoints import checkpoints, load_checkpoint, save_checkpoint
from normgeom.training.log import (
    CsvLog,
    TensorBoardLog,
    begin_log,
    cut_log,
    require,
    synced_size,
    write_parquet,
)
from normgeom.training.loop import Loop, StepRecord


class RunFolder:
    """`log.csv`, `run.json`, `checkpoint-STEP.pt`, and on request `log.parquet` and `tensorboard/`.

    With several processes, the one of rank 0 writes; the folder must be seen by all to resume.
    """

    def __init__(self, path: Path, loop: Loop, *, parquet: bool, tensorboard: bool) -> None:
        """Raise an error if a package is missing for what is asked for."""
        if parquet:
            require("pyarrow", option="parquet")
        if tensorboard:
            require("tensorboard", option="tensorboard")
        self.path, self.loop = path, loop
        self._parquet, self._tensorboard = parquet, tensorboard
        self._writes = place()[0] == 0
        self._saved: int | None = None

    def open(self, *, resume: bool, overwrite: bool, settings: Mapping[str, Any]) -> None:
        """Begin a run in the folder, or bring the loop where the newest checkpoint left it."""
        if resume and overwrite:
            raise ValueError("resume and overwrite exclude each other; give one of them.")
        if resume:
            self._resume()
            return
        self.loop.check()  # before anything is written or deleted
        if self._writes:
            self._refuse_other_files(overwrite)
            self._begin(settings)
        self.save()

    def newest(self) -> Path:
        """Return the newest checkpoint."""
        found = checkpoints(self.path)
        if not found:
            raise FileNotFoundError(f"no run to resume in {self.path}: it has no checkpoint.")
        return found[-1]

    def save(self) -> None:
        """Write a checkpoint of the loop as it is now, and the log up to here.

        Raises:
            NonFiniteTraining: if it is no good; the checkpoints before stay.
        """
        if self._saved == self.loop.step:
            return
        self.loop.check()
        content = self.loop.state_dict()
        if self._writes:
            content["log"] = synced_size(self._log)
            save_checkpoint(self.path, self.loop.step, content)
            if self._parquet:
                write_parquet(self.path)
        self._saved = self.loop.step
        barrier()

    @contextmanager
    def logs(self) -> Iterator[Callable[[StepRecord], None]]:
        """Open the logs; yields a function that writes a row to each."""
        with ExitStack() as opened:
            logs: list[CsvLog | TensorBoardLog] = []
            if self._writes:
                logs.append(opened.enter_context(closing(CsvLog(self._log))))
            if self._writes and self._tensorboard:
                logs.append(opened.enter_context(closing(TensorBoardLog(self.path, step=self.loop.step))))

            def write(record: StepRecord) -> None:
                for log in logs:
                    log.write(record)

            yield write

    @property
    def _log(self) -> Path:
        return self.path / "log.csv"

    def _resume(self) -> None:
        content = load_checkpoint(self.newest())
        self.loop.load_state_dict(content)
        self._saved = self.loop.step
        if self._writes:
            cut_log(self._log, content["log"])
            for part in self.path.glob(".*.part"):  # what a kill has left half-written
                part.unlink()

    def _begin(self, settings: Mapping[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(
            self.path / "run.json",
            {"settings": dict(settings), "task": self.loop.task.identity(), "torch": torch.__version__},
        )
        begin_log(self._log)

    def _refuse_other_files(self, overwrite: bool) -> None:
        """Raise an error for a run that is there, or delete it if that is asked for; never anything else."""
        if self.path.exists() and not self.path.is_dir():
            raise FileExistsError(f"{self.path} must be a folder; it is a file.")
        own = [p for p in (self._log, self.path / "run.json", self.path / "log.parquet") if p.exists()]
        own += checkpoints(self.path)
        if own and not overwrite:
            raise FileExistsError(
                f"{self.path} has a run already. Resume it, overwrite it, or name another folder."
            )
        for file in own:
            file.unlink()
        if overwrite:
            shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
