"""Small layers with random parameters, and the ways to run them."""

import contextlib

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.overrides import TorchFunctionMode

import normgeom as ng

P = ng.Placement
LAYERS = [ng.LNRNN, ng.LNLSTM, ng.LNGRU, ng.DRAWLSTM]
LSTM_PLACEMENTS = [P(i, r, c) for i in (0, 1) for r in (0, 1) for c in (0, 1)] + [
    P(per_gate=True),
    P(joint=True),
    P(joint=True, per_gate=True),
    P(False, True, False, per_gate=True),
]
OTHER_PLACEMENTS = [P(i, r, False) for i in (0, 1) for r in (0, 1)] + [
    P(True, True, False, joint=True),
    P(True, True, False, per_gate=True),
]
VARIANTS = [(kind, p) for kind in (ng.LNRNN, ng.LNGRU) for p in OTHER_PLACEMENTS] + [
    (ng.LNLSTM, p) for p in LSTM_PLACEMENTS
]
VARIANT_IDS = [
    f"{kind.__name__}-{'-'.join(name for name, on in vars(p).items() if on) or 'none'}"
    for kind, p in VARIANTS
]


def core(kind, inputs=5, units=6, layers=1, *, seed=0, dtype=torch.float64, **options):
    """A layer whose every parameter is random, gains near 1."""
    model = kind(inputs, units, layers, dtype=torch.float64, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.randn(value.shape, generator=generator, dtype=torch.float64) / 2)
            value += float(name.endswith("gain"))
    return model.to(dtype)


def draw(*shape, seed=1, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def _tied(model):
    model.layer0.weight_input = model.layer0.weight_recurrent
    model.layer0.norm_input.gain = model.layer0.norm_recurrent.gain


REPARAMETRIZED = {
    "pruned": lambda m: prune.l1_unstructured(m.layer0, "weight_recurrent", 0.5),
    "pruned gain": lambda m: prune.l1_unstructured(m.layer0.norm_cell, "gain", 2),
    "weight norm": lambda m: parametrizations.weight_norm(m.layer0, "weight_input"),
    "weight norm of a gain": lambda m: parametrizations.weight_norm(m.layer0.norm_cell, "gain", dim=None),
    "spectral norm": lambda m: parametrizations.spectral_norm(m.layer0, "weight_recurrent").eval(),
    "old weight norm": lambda m: nn.utils.weight_norm(m.layer0, "weight_input"),
    "old spectral norm": lambda m: nn.utils.spectral_norm(m.layer0, "weight_recurrent").eval(),
    "tied": _tied,
    "frozen": lambda m: m.layer0.weight_input.requires_grad_(False),
}
"""What is done to the weights of a layer of 6 inputs and units."""


class _Watching(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def route(name, monkeypatch):
    """Run by the `kernel`, by `plain` operations, or by the `definition` of the cells."""
    with monkeypatch.context() as patch:
        patch.setenv("NORMGEOM_FUSED", "1" if name == "kernel" else "0")
        with _Watching() if name == "definition" else contextlib.nullcontext():
            yield


def gradients(model, x, *, state=None):
    """Outputs, and the gradients of a function of outputs and final state in all that is differentiable."""
    outputs, final = model(x, state)
    given = () if state is None else state if isinstance(state, tuple) else (state,)
    leaves = [*model.parameters(), *(t for t in (x, *given) if t.requires_grad)]
    value = (outputs * draw(*outputs.shape, seed=9, dtype=outputs.dtype)).sum()
    for each in final if isinstance(final, tuple) else (final,):
        value = value + each.square().sum()
    return outputs.detach(), torch.autograd.grad(value, leaves)
