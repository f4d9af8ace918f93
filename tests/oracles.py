"""Slow, obvious references, written with scalar loops and without normgeom."""

import math


def mean(values):
    return sum(values) / len(values)


def normalized(method, weight, data, eps=0.0, bias=0.0):
    """The normalized summed inputs of each case and unit; `bias` is added before, a number or one a unit."""
    units, cases, inputs = len(weight), len(data), len(weight[0])
    before = bias if hasattr(bias, "__len__") else [bias] * units
    dot = [[sum(x[d] * w[d] for d in range(inputs)) for w in weight] for x in data]
    a = [[dot[n][i] + before[i] for i in range(units)] for n in range(cases)]
    z = [[0.0] * units for _ in range(cases)]
    for n in range(cases):
        for i in range(units):
            if method == "none":
                z[n][i] = a[n][i]
                continue
            if method == "ln_input":
                m = mean(data[n])
                s = math.sqrt(mean([(v - m) ** 2 for v in data[n]]) + eps)
                z[n][i] = sum(weight[i][d] * (data[n][d] - m) / s for d in range(inputs)) + before[i]
                continue
            pool = {"bn": [a[k][i] for k in range(cases)], "ln": a[n], "rms": a[n], "wn": weight[i]}[method]
            m = mean(pool) if method in ("bn", "ln") else 0.0
            square = sum(w * w for w in pool) if method == "wn" else mean([(v - m) ** 2 for v in pool])
            z[n][i] = (a[n][i] - m) / math.sqrt(square + eps)
    return z


# Table 1 of the paper, with rows for RMSNorm, W LN(x) and no norm, derived by hand.
TABLE_1 = {
    "BatchNorm": (True, False, True, True, True, False),
    "WeightNorm": (True, False, True, False, False, False),
    "LayerNorm": (True, True, False, True, False, True),
    "RMSNorm": (True, False, False, True, False, True),
    "InputLayerNorm": (False, False, False, True, False, True),
    "NoNorm": (False, False, False, False, False, False),
}
