"""Small networks, one for each way a parameter can enter a model: `build(name)` -> (module, data, family)."""

# ruff: noqa: E501  (one network a line reads as a table)

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from normgeom.geometry.families import Bernoulli, Categorical, Gaussian


class Through(nn.Module):
    """A stack with a function of its output on top."""

    def __init__(self, function, *layers):
        super().__init__()
        self.layers, self.function = nn.Sequential(*layers), function

    def forward(self, *x):
        return self.function(self.layers(*x))


class Recurrent(nn.Module):
    """A recurrent layer and a readout of its last step."""

    def __init__(self, layer, width, outputs=3):
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(width, outputs)

    def forward(self, x):
        return self.readout(self.layer(x)[0][:, -1])


class Packed(nn.Module):
    """An LSTM over sequences of unequal length, packed inside, and a readout of its last state."""

    def __init__(self):
        super().__init__()
        self.layer, self.readout = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.readout(self.layer(packed)[1][0][-1])


class Tied(nn.Module):
    """An embedding whose weight is also the readout."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.readout = nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 5)
        self.readout.weight = self.embedding.weight

    def forward(self, x):
        return self.readout(self.norm(self.embedding(x).mean(1)))


class Twice(nn.Module):
    """One norm and one linear layer used twice."""

    def __init__(self):
        super().__init__()
        self.norm, self.first, self.again = nn.LayerNorm(4), nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = self.norm(self.first(x)).tanh()
        return self.norm(self.again(F.relu(self.again(h), inplace=True)))


class OwnBatchNorm(nn.Module):
    """Batch statistics that no module type betrays, and a gain of exactly 0."""

    def __init__(self):
        super().__init__()
        self.weight, self.gain = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.tensor([0.0, 0.0, 0.0]))

    def forward(self, x):
        a = x @ self.weight.T
        return self.gain * (a - a.mean(0)) / a.std(0, unbiased=False)


class Attention(nn.Module):
    """Multi-head attention on itself, its output averaged over positions."""

    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


def _gain_zero(module):
    with torch.no_grad():
        module.weight.zero_()
    return module


def _frozen(module):
    module[0].weight.requires_grad_(False)
    return module


def _rows():
    return torch.randn(5, 3)


def _sequence():
    return torch.randn(5, 6, 3)


def _pool(x):
    return x.mean(1)


NETWORKS = {
    "linear": lambda: (nn.Linear(3, 4), _rows(), Categorical()),
    "linear, no bias": lambda: (nn.Linear(3, 4, bias=False), _rows(), Gaussian(0.7)),
    "layer norm": lambda: (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3)), _rows(), Categorical()),
    "layer norm, no affine": lambda: (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4, elementwise_affine=False)), _rows(), Bernoulli()),
    "layer norm, no bias": lambda: (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4, bias=False)), _rows(), Bernoulli()),
    "layer norm, gain 0": lambda: (nn.Sequential(nn.Linear(3, 4), _gain_zero(nn.LayerNorm(4)), nn.Linear(4, 3)), _rows(), Categorical()),
    "rms norm": lambda: (nn.Sequential(nn.Linear(3, 4), nn.RMSNorm(4), nn.Linear(4, 3)), _rows(), Categorical()),
    "group norm": lambda: (nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)), _rows(), Categorical()),
    "batch norm, eval": lambda: (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval(), _rows(), Categorical()),
    "batch norm, train": lambda: (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), _rows(), Categorical()),
    "batch norm 2d, train": lambda: (Through(lambda x: x.mean((2, 3)), nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Tanh()), torch.randn(4, 2, 3, 3), Categorical()),
    "batch norm of one's own": lambda: (OwnBatchNorm(), _rows(), Categorical()),
    "instance norm": lambda: (Through(lambda x: x.square().mean(2), nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True), nn.Tanh()), torch.randn(4, 2, 6), Categorical()),
    "group norm after convolution": lambda: (Through(lambda x: x.mean((2, 3)), nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.Tanh()), torch.randn(4, 2, 3, 3), Categorical()),
    "weight norm": lambda: (nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 3)), _rows(), Categorical()),
    "weight norm, old style": lambda: (nn.Sequential(_old(nn.utils.weight_norm, nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 3)), _rows(), Categorical()),
    "weight norm of the whole": lambda: (parametrizations.weight_norm(nn.Linear(3, 4), dim=None), _rows(), Categorical()),
    "spectral norm": lambda: (nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 3)).eval(), _rows(), Categorical()),
    "spectral norm, train": lambda: (nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 3)), _rows(), Categorical()),
    "spectral norm, old style": lambda: (nn.Sequential(_old(nn.utils.spectral_norm, nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 3)), _rows(), Categorical()),
    "layer norm over a sequence": lambda: (Through(_pool, nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh()), _sequence(), Categorical()),
    "one output a position": lambda: (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 3)), _sequence(), Categorical()),
    "encoder layer": lambda: (Through(_pool, nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Linear(4, 3)).eval(), torch.randn(4, 3, 4), Categorical()),
    "encoder layer, bare": lambda: (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), torch.randn(3, 2, 4), Categorical()),
    "attention": lambda: (Attention().eval(), torch.randn(4, 3, 4), Categorical()),
    "attention, several inputs": lambda: (nn.MultiheadAttention(4, 2, batch_first=True, kdim=3, vdim=3), (torch.randn(3, 2, 4), torch.randn(3, 5, 3), torch.randn(3, 5, 3)), Gaussian()),
    "LSTM": lambda: (Recurrent(nn.LSTM(3, 4, batch_first=True), 4), _sequence(), Categorical()),
    "LSTM, deep, both ways": lambda: (Recurrent(nn.LSTM(3, 3, 2, batch_first=True, bidirectional=True), 6), _sequence(), Categorical()),
    "LSTM with projection": lambda: (Recurrent(nn.LSTM(3, 4, batch_first=True, proj_size=2, bias=False), 2), _sequence(), Categorical()),
    "LSTM, bare": lambda: (nn.LSTM(3, 2, batch_first=True), torch.randn(3, 4, 3), Gaussian()),
    "LSTM with weight norm": lambda: (Recurrent(_old(nn.utils.weight_norm, nn.LSTM(3, 4, batch_first=True), "weight_hh_l0"), 4), _sequence(), Categorical()),
    "LSTM, packed": lambda: (Packed(), (torch.randn(3, 4, 3), torch.tensor([2, 4, 1])), Categorical()),
    "GRU": lambda: (Recurrent(nn.GRU(3, 4, batch_first=True), 4), _sequence(), Categorical()),
    "GRU, no bias": lambda: (Recurrent(nn.GRU(3, 4, 2, batch_first=True, bias=False), 4), _sequence(), Categorical()),
    "RNN": lambda: (Recurrent(nn.RNN(3, 4, batch_first=True, nonlinearity="relu"), 4), _sequence(), Categorical()),
    "embedding": lambda: (Through(lambda x: x.flatten(1), nn.Embedding(5, 3)), torch.randint(5, (4, 2)), Categorical()),
    "embedding, sparse": lambda: (Through(lambda x: x.flatten(1), nn.Embedding(5, 3, sparse=True, padding_idx=0)), torch.randint(5, (4, 2)), Categorical()),
    "tied weights": lambda: (Tied(), torch.randint(5, (4, 3)), Categorical()),
    "used twice": lambda: (Twice(), _rows(), Categorical()),
    "frozen weight": lambda: (_frozen(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 3))), _rows(), Categorical()),
    "dropout, eval": lambda: (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3)).eval(), _rows(), Categorical()),
    "dropout, p = 0": lambda: (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 3)), _rows(), Categorical()),
}  # fmt: skip


def _old(wrap, layer, *args):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return wrap(layer, *args)


def build(name, dtype=torch.float64, seed=0):
    """Return (module, data, family) of a named network, in float64 and with parameters in general position."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module, data, family = NETWORKS[name]()
        module = module.to(dtype)
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.abs().max() > 0:
                    parameter.add_(0.3 * torch.randn_like(parameter))
        return module, _cast(data, dtype), family


def _cast(data, dtype):
    if isinstance(data, tuple):
        return tuple(_cast(part, dtype) for part in data)
    return data.to(dtype) if data.is_floating_point() else data


def assert_near(value, wanted, tolerance=1e-12):
    """Assert that every entry is within a tolerance of the largest."""
    scale = tolerance * (float(wanted.abs().max()) or 1.0)
    torch.testing.assert_close(value, wanted, rtol=0, atol=scale)


def free(module):
    """The parameters that are trained, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


MIXED = [
    "layer norm",
    "batch norm, train",
    "weight norm",
    "LSTM",
    "one output a position",
    "embedding, sparse",
    "encoder layer",
]
"""Networks of several kinds, for what need not be asked of all."""
