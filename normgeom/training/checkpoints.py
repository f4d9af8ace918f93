"""Checkpoints that are either whole or not there."""

from pathlib import Path
from typing import Any

import torch

from normgeom.report import atomic

KEPT = 2


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
        torch.save(content, file)
    for old in [p for p in checkpoints(folder) if p <= path][:-KEPT]:
        old.unlink()
    return path


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the content of a checkpoint, on the CPU; nothing in the file is executed.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no checkpoint {path}.")
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as why:
        reason = (str(why).strip().splitlines() or [type(why).__name__])[0]
        raise ValueError(
            f"{path} must be a checkpoint; it cannot be read ({reason}). Delete it to go on "
            "from the one before."
        ) from why
    return content
