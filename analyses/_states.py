"""Hidden states of untrained recurrent cells over a text, and the gradient of the last loss in them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from analyses._mean_field import layer_norm_rnn_rate, rnn_rate
from normgeom.models import LNLSTMCell, LNRNNCell, Placement
from normgeom.training import Corpus

CELLS: dict[str, tuple[Any, Placement | None, float]] = {
    "RNN": (LNRNNCell, Placement.none(), 1.0),
    "LN-RNN": (LNRNNCell, None, 1.0),
    "LN-RNN, gain 0.1": (LNRNNCell, None, 0.1),
    "LSTM": (LNLSTMCell, Placement.none(), 1.0),
    "LN-LSTM": (LNLSTMCell, None, 1.0),
    "LN-LSTM, gain 0.1": (LNLSTMCell, None, 0.1),
}


def norms(
    name: str, scale: float, seed: int, text: Corpus, *, steps: int, cases: int, hidden: int, device: str
) -> tuple[list[float], list[float]]:
    """Return sizes of the state at every step, and of the gradient in it at every distance."""
    make, placement, gain = CELLS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        cell = make(text.vocabulary, hidden, placement=placement, initial_gain=gain, dtype=torch.float64)
        readout = torch.nn.Linear(hidden, text.vocabulary, dtype=torch.float64).to(device)
    cell.to(device).weight_recurrent.data.mul_(scale)
    ids = text.held_out[: cases * (steps + 1)].view(cases, -1).T.to(device)
    start = torch.zeros(cases, hidden, dtype=torch.float64, device=device)
    states = cell.run(cell.project(ids[:-1]), (start,) * (2 if cell.has_cell_state else 1))
    outputs = [state[0] for state in states]
    loss = functional.cross_entropy(readout(outputs[-1]), ids[-1], reduction="sum")
    gradients = torch.autograd.grad(loss, outputs)
    units = math.sqrt(hidden)
    return [root_mean_square(h) / units for h in outputs], [root_mean_square(g) for g in reversed(gradients)]


def root_mean_square(vectors: Tensor) -> float:
    """Return the root mean square norm over cases, without overflow or underflow of the squares."""
    largest = float(vectors.detach().abs().max())
    if not (largest > 0 and math.isfinite(largest)):
        return largest
    return largest * float((vectors.detach() / largest).norm()) / math.sqrt(len(vectors))


def slope(gradients: Sequence[float], start: int) -> float:
    """Return powers of ten in 100 steps, over the distances with a positive finite gradient; NaN below 5."""
    values = np.array(gradients)
    used = np.flatnonzero(np.isfinite(values) & (values > np.finfo(float).tiny))
    used = used[used >= start]
    return float(100 * np.polyfit(used, np.log10(values[used]), 1)[0]) if len(used) >= 5 else math.nan


def theory_of(name: str, scale: float, hidden: int) -> float | None:
    """Return the slope of mean-field theory, which there is for RNNs."""
    make, placement, gain = CELLS[name]
    if make is not LNRNNCell:
        return None
    return layer_norm_rnn_rate(scale, hidden, gain) if placement is None else rnn_rate(scale, hidden)
