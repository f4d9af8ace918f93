"""A run in plain values: what a command line or a file can say."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from normgeom.models import DRAWLSTM, LNGRU, LNLSTM, LNRNN, CharLM, Placement, RowDigits
from normgeom.training.corpus import NOVELS, Corpus
from normgeom.training.next_character import NextCharacter
from normgeom.training.sequential_digits import SequentialDigits
from normgeom.training.tasks import check_at_least_1, check_whole

LAYERED: dict[str, Any] = {"ln-lstm": LNLSTM, "ln-gru": LNGRU, "ln-rnn": LNRNN, "draw-lstm": DRAWLSTM}
PLAIN: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
CELLS = LAYERED | PLAIN
"""The recurrent layers by name: the paper's, and torch's own."""

Maker = Callable[..., Optimizer]
OPTIMIZERS: dict[str, tuple[Maker, dict[str, Any], float]] = {
    "sgd": (torch.optim.SGD, {}, 0.5),
    "sgdm": (torch.optim.SGD, {"momentum": 0.9}, 0.1),
    "adam": (torch.optim.Adam, {}, 0.002),
    "adamw": (torch.optim.AdamW, {}, 0.002),
}
"""The optimizers by name: what makes them, its options, and the learning rate if none is given."""


@dataclass(frozen=True)
class Settings:
    """What a run computes.

    Args:
        task: `digits`, the name of a novel that comes with normgeom, or the path of a text file or folder.
        cell: a name of `CELLS`.
        hidden: units of a layer.
        layers: number of layers.
        norm_input, norm_recurrent, norm_cell, joint, per_gate: the fields of `Placement`; None is the
            paper's for the cell.
        initial_gain: of every norm.
        length: characters that one step reads of each stream.
        batch: streams of text, or images, a step.
        held_out: the last part of a text that is held out, a fraction.
        whole_vocabulary: whether the characters of the held-out part belong to the vocabulary too.
        steps: number of steps.
        optimizer: a name of `OPTIMIZERS`.
        lr: learning rate; None is the optimizer's of `OPTIMIZERS`.
        weight_decay: as the optimizer defines it, for all parameters.
        clip: largest norm of the gradient; 0 does not clip.
        seed: of the initial weights, of the order of the images, and of dropout.
        evaluate_every: steps between evaluations; 0 never evaluates.

    Raises:
        ValueError: for an unknown name, a size below 1, a negative seed, or norms in a cell that has none.

    >>> Settings(cell="ln-gru", hidden=16).make_model(75).core
    LNGRU(
      75, 16, num_layers=1, batch_first=False, dropout=0
      (layer0): LNGRUCell(...)
    )
    """

    task: str = "persuasion"
    cell: str = "ln-lstm"
    hidden: int = 128
    layers: int = 1
    norm_input: bool | None = None
    norm_recurrent: bool | None = None
    norm_cell: bool | None = None
    joint: bool | None = None
    per_gate: bool | None = None
    initial_gain: float = 1.0
    length: int = 100
    batch: int = 32
    steps: int = 1000
    optimizer: str = "adam"
    lr: float | None = None
    weight_decay: float = 0.0
    clip: float = 1.0
    seed: int = 0
    evaluate_every: int = 100
    held_out: float = 0.1
    whole_vocabulary: bool = False

    def __post_init__(self) -> None:
        """Raise an error for values that make no run, as far as they show it."""
        _check_name("cell", self.cell, CELLS)
        _check_name("optimizer", self.optimizer, OPTIMIZERS)
        check_at_least_1(hidden=self.hidden, layers=self.layers, batch=self.batch, length=self.length)
        check_whole(seed=self.seed)
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2^63 - 1; got {self.seed}.")
        if not self.task:
            raise ValueError(f"task must be digits, {', '.join(NOVELS)} or the path of a text; got ''.")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be a fraction between 0 and 1; got {self.held_out}.")
        if self.task == "digits" and (self.held_out, self.whole_vocabulary) != (0.1, False):
            raise ValueError(
                "held_out and whole_vocabulary are of texts; the task is digits, whose split is fixed."
            )
        if not math.isfinite(self.initial_gain):
            raise ValueError(f"initial_gain must be a finite number; got {self.initial_gain}.")
        if not 0 <= self.clip < math.inf:
            raise ValueError(f"clip must be a norm above 0, or 0 for none; got {self.clip}.")
        if self.cell in PLAIN and (self._norms() or self.initial_gain != 1):
            given = ", ".join(self._norms()) or "initial_gain"
            raise ValueError(
                f"norms can be placed in {', '.join(LAYERED)}; got {given} for {self.cell}, which has none."
            )

    def make_task(self) -> NextCharacter | SequentialDigits:
        """Return the task; the text is read.

        Raises:
            FileNotFoundError: if there is no such text.
            ValueError: if the text cannot be used with these sizes.
        """
        if self.task == "digits":
            return SequentialDigits(batch_size=self.batch, seed=self.seed)
        if self.task in NOVELS:
            corpus = Corpus.from_novel(self.task, held_out=self.held_out)
        else:
            corpus = Corpus.from_text(
                self.task, held_out=self.held_out, whole_vocabulary=self.whole_vocabulary
            )
        return NextCharacter(corpus, length=self.length, batch_size=self.batch)

    def make_model(self, classes: int) -> CharLM | RowDigits:
        """Return a model for this number of classes, its weights drawn from the seed."""
        inputs = 8 if self.task == "digits" else classes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            core = self._core(inputs)
            return RowDigits(core, classes) if self.task == "digits" else CharLM(core, classes)

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return the optimizer for parameters.

        Raises:
            ValueError: if the optimizer refuses its numbers.
        """
        make, options, rate = OPTIMIZERS[self.optimizer]
        rate = rate if self.lr is None else self.lr
        return make(parameters, lr=rate, weight_decay=self.weight_decay, **options)

    def _core(self, inputs: int) -> Any:
        sizes = (inputs, self.hidden, self.layers)
        if self.cell in PLAIN:
            return PLAIN[self.cell](*sizes)
        layer = LAYERED[self.cell]
        placement: Placement = replace(layer.cell_type.paper, **self._norms())
        return layer(*sizes, placement=placement, initial_gain=self.initial_gain)

    def _norms(self) -> dict[str, bool]:
        """The fields of the placement that are given."""
        fields = {
            "input": self.norm_input,
            "recurrent": self.norm_recurrent,
            "cell": self.norm_cell,
            "joint": self.joint,
            "per_gate": self.per_gate,
        }
        return {name: value for name, value in fields.items() if value is not None}


def _check_name(option: str, name: str, known: dict[str, Any]) -> None:
    if name not in known:
        raise ValueError(f"{option} must be among {', '.join(known)}; got {name!r}.")
