"""Small models with every kind of symmetry, in float64 with eps 0: what scans and their tests look at."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Make = Callable[[], nn.Module]


def layer_norm(size: int) -> nn.Module:
    """Return a layer norm without eps."""
    return nn.LayerNorm(size, eps=0.0)


def layer_norm_without_bias(size: int) -> nn.Module:
    """Return a layer norm without eps that has a gain only."""
    return nn.LayerNorm(size, eps=0.0, bias=False)


def rms_norm(size: int) -> nn.Module:
    """Return an RMSNorm; 0 is not allowed as its eps."""
    return nn.RMSNorm(size, eps=1e-300)


def batch_norm(size: int) -> nn.Module:
    """Return a batch norm by the statistics of the batch; 0 is not allowed as its eps."""
    return nn.BatchNorm2d(size, eps=1e-300, track_running_stats=False)


def group_norm(size: int) -> nn.Module:
    """Return a group norm of two groups without eps."""
    return nn.GroupNorm(2, size, eps=0.0)


class Attention(nn.Module):
    """Causal attention; `normalized`: queries and keys divided by their root mean square, head by head."""

    def __init__(self, size: int, heads: int, bias: bool, normalized: bool) -> None:
        super().__init__()
        self.h, self.normalized = heads, normalized
        self.q, self.k, self.v, self.o = (nn.Linear(size, size, bias=bias) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Return (cases, steps, size)."""
        cases, steps, size = x.shape
        q, k, v = (f(x).view(cases, steps, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.normalized:
            q, k = (a / torch.sqrt((a * a).mean(-1, keepdim=True)) for a in (q, k))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        future = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(cases, steps, size))


class Layer(nn.Module):
    """A transformer layer, pre-LN or post-LN."""

    def __init__(
        self,
        size: int,
        heads: int,
        norm: Callable[[int], nn.Module],
        bias: bool,
        normalized: bool,
        activation: Callable[[Tensor], Tensor],
        post: bool,
    ) -> None:
        super().__init__()
        self.n1, self.n2 = norm(size), norm(size)
        self.a = Attention(size, heads, bias, normalized)
        self.f1, self.f2 = nn.Linear(size, 2 * size, bias=bias), nn.Linear(2 * size, size, bias=bias)
        self.activation, self.post = activation, post

    def forward(self, x: Tensor) -> Tensor:
        """Return (cases, steps, size)."""
        if self.post:
            x = self.n1(x + self.a(x))
            return self.n2(x + self.f2(self.activation(self.f1(x))))
        x = x + self.a(self.n1(x))
        return x + self.f2(self.activation(self.f1(self.n2(x))))


class GPT(nn.Module):
    """A transformer that predicts tokens."""

    def __init__(
        self,
        *,
        norm: Callable[[int], nn.Module] = layer_norm,
        bias: bool = True,
        normalized: bool = False,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
        post: bool = False,
        positions: bool = True,
        layers: int = 2,
        tokens: int = 17,
        length: int = 8,
        size: int = 16,
    ) -> None:
        super().__init__()
        self.tok = nn.Embedding(tokens, size)
        self.pos = nn.Parameter(torch.randn(length, size) * 0.5) if positions else None
        self.b = nn.ModuleList(
            Layer(size, 2, norm, bias, normalized, activation, post) for _ in range(layers)
        )
        self.nf = nn.Identity() if post else norm(size)
        self.head = nn.Linear(size, tokens, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (cases, steps, tokens)."""
        x = self.tok(tokens)
        x = x if self.pos is None else x + self.pos
        for layer in self.b:
            x = layer(x)
        return self.head(self.nf(x))


class LNLSTM(nn.Module):
    """The paper's LN-LSTM; `joint`: one norm of the sum of both products and the bias."""

    def __init__(self, *, joint: bool = False) -> None:
        super().__init__()
        self.wx, self.wh = nn.Linear(6, 40, bias=False), nn.Linear(10, 40, bias=False)
        self.bias = nn.Parameter(torch.randn(40) * 0.3)
        self.lx, self.lc = layer_norm(40), layer_norm(10)
        self.lh = None if joint else layer_norm(40)
        self.head = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Return (cases, 5)."""
        h = x.new_ones(len(x), 10) * 0.1 * torch.arange(1.0, 11, dtype=x.dtype)
        c = h * 0
        for t in range(x.shape[1]):
            a, b = self.wx(x[:, t]), self.wh(h)
            gates = self.lx(a + b + self.bias) if self.lh is None else self.lx(a) + self.lh(b) + self.bias
            i, f, o, g = gates.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * self.lc(c).tanh()
        return self.head(h)


class CNN(nn.Module):
    """Three convolutions with norms, the second one a residual branch."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.c1, self.c3 = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(8, 8, 3, bias=False)
        self.c2 = nn.Conv2d(8, 8, 3)
        self.n1, self.n2, self.n3 = norm(8), norm(8), norm(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return (cases, 4)."""
        x = functional.relu(self.n1(self.c1(x)))
        x = x[:, :, 1:-1, 1:-1] + self.n2(self.c2(x))
        return self.fc(functional.relu(self.n3(self.c3(x))).mean((2, 3)))


def tokens() -> Tensor:
    """Return token ids (cases, steps)."""
    return torch.randint(0, 17, (8, 8))


def series() -> Tensor:
    """Return series (cases, steps, inputs)."""
    return torch.randn(8, 5, 6, dtype=torch.float64)


def images() -> Tensor:
    """Return images (cases, channels, height, width)."""
    return torch.randn(6, 3, 12, 12, dtype=torch.float64)


PLAIN: dict[str, Any] = {"norm": layer_norm_without_bias, "bias": False, "activation": functional.relu}
QK_NORM: dict[str, Any] = {"norm": rms_norm, "bias": False, "normalized": True, "positions": False}

MODELS: dict[str, tuple[Make, Callable[[], Tensor]]] = {
    "pre-LN": (GPT, tokens),
    "pre-LN without biases, relu": (lambda: GPT(**PLAIN), tokens),
    "RMSNorm, normalized queries and keys": (lambda: GPT(**QK_NORM), tokens),
    "post-LN": (lambda: GPT(post=True), tokens),
    "LN-LSTM": (LNLSTM, series),
    "LN-LSTM, one norm": (lambda: LNLSTM(joint=True), series),
    "batch norm": (lambda: CNN(batch_norm), images),
    "group norm": (lambda: CNN(group_norm), images),
}


def scanned_model(name: str) -> tuple[nn.Module, Tensor]:
    """Return a model of `MODELS` with no gain 1 and no bias 0, in float64, and its batch."""
    make, batch = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make().double()
        with torch.no_grad():
            for value in model.parameters():
                value.add_(torch.randn_like(value) * (0.3 if value.dim() < 2 else 0.1))
        return model, batch()
