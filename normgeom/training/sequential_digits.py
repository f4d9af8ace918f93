"""Digits read row by row, so that results do not rest on text alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normgeom.points import digit_images
from normgeom.training.tasks import (
    Batch,
    check_at_least_1,
    check_batch_number,
    check_divisible,
    check_whole,
    own,
)


@dataclass(frozen=True, eq=False)
class SequentialDigits:
    """Tell scikit-learn's digits apart, reading the 8 rows of an image one by one.

    The last fifth of the 1797 images is held out. A pass goes through the others in an order drawn anew,
    from the seed and the number of the pass; what is left over after whole batches is not used in it.

    Args:
        batch_size: images in a batch.
        seed: of the order of the images.
        dtype: type of the pixels, which are between 0 and 1.
        device: where batches are.

    Raises:
        ValueError: if there are fewer images than the batch is to have, or that is less than 1.

    >>> batch = SequentialDigits(batch_size=32).batch(0)
    >>> tuple(batch.inputs.shape), tuple(batch.targets.shape), batch.fresh
    ((8, 32, 8), (32,), True)
    """

    batch_size: int = field(kw_only=True)
    seed: int = field(default=0, kw_only=True)
    dtype: torch.dtype = field(default=torch.float32, kw_only=True)
    device: torch.device = field(default=torch.device("cpu"), kw_only=True)
    rank: int = field(default=0, kw_only=True)
    processes: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Raise an error for a batch that cannot be filled."""
        check_at_least_1(batch_size=self.batch_size)
        check_whole(seed=self.seed)
        if self.seed < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}.")
        if not self.dtype.is_floating_point:
            raise TypeError(f"dtype must be of floating-point numbers; got {self.dtype}.")
        if self.batch_size > self._cut:
            raise ValueError(
                f"batch_size must be at most {self._cut}, the images to train on; got {self.batch_size}."
            )

    @property
    def classes(self) -> int:
        """The number of digits."""
        return 10

    @property
    def batches_per_pass(self) -> int:
        """The number of batches after which the images are put in a new order."""
        return self._cut // self.batch_size

    @cached_property
    def _images(self) -> tuple[Tensor, Tensor]:
        """All images, rows first, (8, 1797, 8), and their labels."""
        images, labels = digit_images()
        rows = images.view(-1, 8, 8).transpose(0, 1)
        return rows.to(self.device, self.dtype), labels.to(self.device)

    @cached_property
    def _cut(self) -> int:
        """The number of images to train on."""
        return len(digit_images()[1]) * 4 // 5

    def batch(self, number: int, /) -> Batch:
        """Return rows (8, cases, 8) and labels (cases,)."""
        check_batch_number(number)
        turn, place = divmod(number, self.batches_per_pass)
        order = np.random.default_rng([self.seed, turn]).permutation(self._cut)
        whole = order[place * self.batch_size : (place + 1) * self.batch_size]
        return self._at(torch.from_numpy(whole[own(self.batch_size, self.rank, self.processes)]))

    def held_out(self) -> Iterator[Batch]:
        """Return this process's share of the last fifth of the images."""
        mine = torch.arange(self._cut, len(self._images[1]))[self.rank :: self.processes]
        for chosen in mine.split(256):
            yield self._at(chosen)

    def _at(self, chosen: Tensor) -> Batch:
        rows, labels = self._images
        chosen = chosen.to(self.device)
        return Batch(rows[:, chosen], labels[chosen], fresh=True)

    def predict(self, model: Any, batch: Batch, state: Any, /) -> tuple[Tensor, None]:
        """Return the model's logits (cases, 10); there is no state to carry."""
        return model(batch.inputs), None

    def share(self, rank: int, processes: int, /) -> "SequentialDigits":
        """Return the task of one process: its part of every batch.

        Raises:
            ValueError: if batches cannot be divided equally.
        """
        check_divisible(self.batch_size, processes)
        return replace(self, rank=rank, processes=processes)

    def to(self, device: torch.device, /) -> "SequentialDigits":
        """Return the task on another device."""
        return replace(self, device=device)

    def identity(self) -> dict[str, str | int]:
        """Return the sizes and the seed."""
        return {"task": "sequential digits", "batch size": self.batch_size, "seed": self.seed}
