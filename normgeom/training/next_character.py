"""The task of a character language model."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from normgeom.training.corpus import Corpus
from normgeom.training.tasks import IGNORED, Batch, check_at_least_1, check_batch_number, check_divisible, own


@dataclass(frozen=True, eq=False)
class NextCharacter:
    """Predict every character of a text from those before it.

    The training part is cut into `batch_size` streams, read side by side, `length` characters a step; the
    recurrent state is carried from step to step, the gradient is not (truncated backpropagation through
    time). At their end, the streams start again from a state of 0. The held-out part is cut into `pieces`,
    each read from a state of 0: with 1, every character is predicted from all before it; with more,
    evaluation is faster and the first characters of a piece lack their context.

    Args:
        corpus: the text.
        length: characters of a stream that one step reads.
        batch_size: number of streams.
        pieces: number of pieces of the held-out part, which are read side by side.
        device: where batches are.

    Raises:
        ValueError: if a number is less than 1, or the training part is too short for one step.

    Source: Graves 2013 (arXiv:1308.0850), sections 2 and 3; Williams, Peng 1990 (truncation).

    >>> task = NextCharacter(Corpus.from_string("abcd" * 4, held_out=0.2), length=2, batch_size=2)
    >>> task.batch(0).inputs.T.tolist(), task.batch(0).targets.T.tolist()
    ([[0, 1], [2, 3]], [[1, 2], [3, 0]])
    """

    corpus: Corpus
    length: int = field(kw_only=True)
    batch_size: int = field(kw_only=True)
    pieces: int = field(default=32, kw_only=True)
    device: torch.device = field(default=torch.device("cpu"), kw_only=True)
    rank: int = field(default=0, kw_only=True)
    processes: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Raise an error for numbers that do not fit each other or the text."""
        if not isinstance(self.corpus, Corpus):
            raise TypeError(f"corpus must be a Corpus; got {type(self.corpus).__name__}.")
        check_at_least_1(length=self.length, batch_size=self.batch_size, pieces=self.pieces)
        needed, there = self.batch_size * self.length + 1, len(self.corpus.training)
        if there < needed:
            raise ValueError(
                f"the part of {self.corpus.name} to train on must have at least batch_size x length + 1 = "
                f"{needed} characters; it has {there}. Take a smaller batch_size or length."
            )

    @property
    def classes(self) -> int:
        """The size of the vocabulary."""
        return self.corpus.vocabulary

    @property
    def batches_per_pass(self) -> int:
        """The number of batches after which the streams start again."""
        return (len(self.corpus.training) - 1) // self.batch_size // self.length

    @cached_property
    def _streams(self) -> Tensor:
        """One process's streams, (characters + 1, streams), each from the last of the one before."""
        width = (len(self.corpus.training) - 1) // self.batch_size
        rows = self.corpus.training.unfold(0, width + 1, width)[: self.batch_size]
        return rows[own(self.batch_size, self.rank, self.processes)].T.contiguous().to(self.device)

    def batch(self, number: int, /) -> Batch:
        """Return inputs and targets (length, streams), the ids of characters and of their successors."""
        check_batch_number(number)
        window = number % self.batches_per_pass
        start, stop = window * self.length, (window + 1) * self.length
        return Batch(self._streams[start:stop], self._streams[start + 1 : stop + 1], window == 0)

    def held_out(self) -> Iterator[Batch]:
        """Return this process's pieces; all targets but the very first character occur once over all."""
        inputs, targets = self.corpus.held_out[:-1], self.corpus.held_out[1:]
        pieces = min(self.pieces, len(targets))
        filler = -len(targets) % pieces
        mine = slice(self.rank, None, self.processes)
        inputs, targets = (
            functional.pad(part, (0, filler), value=value).view(pieces, -1)[mine].T.to(self.device)
            for part, value in ((inputs, 0), (targets, IGNORED))
        )
        for start in range(0, len(targets) if targets.shape[1] else 0, self.length):
            window = slice(start, start + self.length)
            yield Batch(inputs[window], targets[window], start == 0)

    def predict(self, model: Any, batch: Batch, state: Any, /) -> tuple[Tensor, Any]:
        """Return the model's logits (time, streams, characters) and its state after the batch."""
        return model(batch.inputs, state)

    def share(self, rank: int, processes: int, /) -> "NextCharacter":
        """Return the task of one process: its streams, next to each other, and every so-many-th piece.

        Raises:
            ValueError: if the streams cannot be divided equally.
        """
        check_divisible(self.batch_size, processes)
        return replace(self, rank=rank, processes=processes)

    def to(self, device: torch.device, /) -> "NextCharacter":
        """Return the task on another device."""
        return replace(self, device=device)

    def identity(self) -> dict[str, str | int]:
        """Return the text's digest and the sizes."""
        return {
            "task": "next character",
            "text": self.corpus.digest(),
            "length": self.length,
            "batch size": self.batch_size,
            "pieces": self.pieces,
        }
