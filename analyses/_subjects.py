"""The architectures that the atlas maps and the guessers guess about."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

import normgeom as ng
from analyses._run import Options
from analyses._scanned_models import MODELS, scanned_model
from analyses._transformers_models import MISSING, NAMES, is_installed, transformers_model

TWO_LAYERS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {"n_layer": 2},
    "T5ForConditionalGeneration": {"num_layers": 2},
    "ResNetForImageClassification": {"hidden_sizes": [16, 32, 64, 128], "depths": [3, 4, 6, 3]},
    "ConvNextForImageClassification": {"depths": [2, 2]},
}
"""Changes of the smallest settings; two layers for those that are not named. ResNet has the 50's depths."""


@dataclass(frozen=True)
class Subject:
    """An architecture.

    Attributes:
        name: as in tables.
        make: the model and its batch.
        source: where it is from.
    """

    name: str
    make: Callable[[], tuple[nn.Module, Any]]
    source: str

    def scan(self) -> ng.SymmetryMap:
        """Return its map."""
        model, batch = self.make()
        return ng.scan(model, batch, select=logits)


def logits(out: Any) -> Tensor:
    """Return the outputs that are scanned: the tensor, or the logits among others."""
    return out if isinstance(out, Tensor) else out.logits


def subjects(options: Options) -> tuple[list[Subject], str]:
    """Return the architectures, which are left out and why, or nothing; with `--quick` a few small ones."""
    names = ("pre-LN", "batch norm", "LN-LSTM") if options.quick else tuple(MODELS)
    found = [Subject(name, partial(scanned_model, name), "reference") for name in names]
    classes = ("GPT2LMHeadModel", "ResNetForImageClassification") if options.quick else tuple(NAMES)
    if not is_installed():
        return found, f"Left out: {', '.join(NAMES[name] for name in classes)}: {MISSING}."
    for name in classes:
        layers = TWO_LAYERS.get(name, {"num_hidden_layers": 2})
        make = partial(transformers_model, name, **({} if options.quick else layers))
        found.append(Subject(NAMES[name], make, "transformers"))
    return found, ""
