"""Checkpoints that are either whole or not there."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from normgeom.report import atomic

KEPT = 2
PARTS = {"step", "kinds", "model", "optimizer", "scheduler", "generator", "state", "task"}


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints in the folder of a run, the newest last."""
    return sorted(Path(folder).glob("checkpoint-*.pt"))


def save_checkpoint(folder: str | Path, step: int, content: dict[str, Any]) -> Path:
    """Write `checkpoint-STEP.pt` and keep the one before it; older ones are deleted.

    The file appears under its name only once it is on the disk, so that a kill or a power cut leaves the
    checkpoints before it as they were.
    """
    path = Path(folder) / f"checkpoint-{step:09d}.pt"
    with atomic(path, "wb") as file:
        torch.save(_plain(content), file)
    for old in [p for p in checkpoints(folder) if p <= path][:-KEPT]:
        old.unlink()
    return path


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the content of a checkpoint, on the CPU; nothing in the file is executed.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, holds what is neither a tensor nor a plain value, or is not that
            of a run.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no checkpoint {path}.")
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as why:
        if zipfile.is_zipfile(path):
            raise ValueError(
                f"{path} must be a checkpoint of tensors and plain values; it is whole, but holds other "
                "objects. Is the state of the optimizer and the scheduler made of numbers and tensors?"
            ) from why
        reason = (str(why).strip().splitlines() or [type(why).__name__])[0]
        raise ValueError(
            f"{path} must be a checkpoint; it is damaged ({reason}). Delete it to go on from the one before."
        ) from why
    if not isinstance(content, dict) or not content.keys() >= PARTS:
        raise ValueError(
            f"{path} must be a checkpoint of a run, with {', '.join(sorted(PARTS))}; it is something else."
        )
    return content


def _plain(value: Any) -> Any:
    """Return containers with numbers of numpy as Python's, which is all that a checkpoint may hold."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return type(value)((_plain(k), _plain(v)) for k, v in value.items())
    if type(value) in (list, tuple):
        return type(value)(_plain(v) for v in value)
    return value
