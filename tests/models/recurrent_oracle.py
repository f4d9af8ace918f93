"""The cells of the paper once more, slow and obvious: scalar loops over units, written without normgeom."""

import math

import torch


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def layer_norm(values, gain, bias, eps):
    mean = sum(values) / len(values)
    sigma = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values) + eps)
    return [g * (v - mean) / sigma + b for v, g, b in zip(values, gain, bias, strict=True)]


def product(weight, vector):
    return [sum(w * v for w, v in zip(row, vector, strict=True)) for row in weight]


def ln_lstm(p, xs, h, c, eps, per_gate=False, joint=False):
    """The hidden states of one case; with per_gate, statistics of each gate; with joint, of the sum."""
    units, outputs = len(h), []

    def norm(values, name):
        size = units if per_gate else 4 * units
        parts = []
        for start in range(0, 4 * units, size):
            at = slice(start, start + size)
            parts += layer_norm(values[at], p[f"{name}.gain"][at], p[f"{name}.bias"][at], eps)
        return parts

    for x in xs:
        by_x, by_h = product(p["weight_input"], x), product(p["weight_recurrent"], h)
        if joint:
            gates = norm([a + b for a, b in zip(by_x, by_h, strict=True)], "norm_joint")
        else:
            pairs = zip(norm(by_x, "norm_input"), norm(by_h, "norm_recurrent"), strict=True)
            gates = [a + b for a, b in pairs]
        if "bias" in p:
            gates = [a + b for a, b in zip(gates, p["bias"], strict=True)]
        f, i, o, g = (gates[k * units : (k + 1) * units] for k in range(4))
        c = [sigmoid(f[k]) * c[k] + sigmoid(i[k]) * math.tanh(g[k]) for k in range(units)]
        read = layer_norm(c, p["norm_cell.gain"], p["norm_cell.bias"], eps)
        h = [sigmoid(o[k]) * math.tanh(read[k]) for k in range(units)]
        outputs.append(h)
    return outputs


def case_by_case_gradients(core, x, cotangent):
    """The gradient of every case alone, one ordinary backward pass each: x (steps, cases, ...)."""
    each = []
    for n in range(x.shape[1]):
        value = (core(x[:, n : n + 1])[0] * cotangent[:, n : n + 1]).sum()
        each.append(torch.autograd.grad(value, list(core.parameters())))
    names = [name for name, _ in core.named_parameters()]
    return {name: torch.stack(g) for name, g in zip(names, zip(*each, strict=True), strict=True)}
