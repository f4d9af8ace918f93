"""Models whose scale symmetries are known, and near misses."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from normgeom import ScaleKind, scale_invariance


class OwnRMSNorm(nn.Module):
    """A norm that no list of classes knows, with a gain called scale."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.scale * x / x.pow(2).mean(-1, keepdim=True).sqrt()


class Mixed(nn.Module):
    """Layers before a norm of one's own, under weight norm, and before nothing."""

    def __init__(self):
        super().__init__()
        self.a, self.n = nn.Linear(4, 6, bias=False), OwnRMSNorm(6)
        self.b, self.c = weight_norm(nn.Linear(6, 6)), nn.Linear(6, 2)

    def forward(self, x):
        return self.c(torch.tanh(self.b(self.n(self.a(x)))))


class Renorm(nn.Module):
    """Batch statistics replaced by running ones without a gradient: radial gradient 0, not invariant."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("kept", torch.ones(size))

    def forward(self, a):
        sigma = a.std(0, correction=0)
        return a / sigma * (sigma / self.kept).detach()


class LayerNormLSTM(nn.Module):
    """The paper's LN-LSTM without its last norm: `LN(W_h h) + LN(W_x x) + b`, from h = 0."""

    def __init__(self, inputs=3, units=4, eps=1e-5):
        super().__init__()
        self.wx = nn.Linear(inputs, 4 * units, bias=False)
        self.wh = nn.Linear(units, 4 * units, bias=False)
        self.lx, self.lh = (nn.LayerNorm(4 * units, eps=eps) for _ in range(2))
        self.units = units

    def forward(self, x):
        h = c = x.new_zeros(len(x), self.units)
        for t in range(x.shape[1]):
            i, f, o, g = (self.lx(self.wx(x[:, t])) + self.lh(self.wh(h))).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


class Attention(nn.Module):
    """Self-attention whose queries and keys are normalized head by head, or not."""

    def __init__(self, normalized=True, size=8, heads=2):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(size, size, bias=True) for _ in range(3))
        self.normalized, self.heads = normalized, heads

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.normalized:
            q, k = (a / a.norm(dim=-1, keepdim=True) for a in (q, k))
        return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2)


BATCH = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))


def seeded(make, seed=0):
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return make()


def kinds(model, batch, **options):
    """The blocks that are not `none`."""
    found = scale_invariance(seeded(lambda: model), batch, **options)
    return {one.block: str(one.kind) for one in found if one.kind is not ScaleKind.NONE}


def before(norm):
    """A layer before a norm, and one after."""
    return seeded(lambda: nn.Sequential(nn.Linear(4, 6, bias=False), norm, nn.Linear(6, 2)))
