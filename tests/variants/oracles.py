"""Slow, obvious references of the zoo: loops over entries, from the papers' formulas, without normgeom."""

import math

import numpy as np


def summed(weight, data):
    """`a_ni = sum_d w_id x_nd`; for filters and images, at every position where the filter fits."""
    if weight.ndim == 2:
        return np.array([[sum(w * v for w, v in zip(row, x, strict=True)) for row in weight] for x in data])
    (units, _, height, width), (cases, _, rows, columns) = weight.shape, data.shape
    out = np.zeros((cases, units, rows - height + 1, columns - width + 1))
    for n, i, y, x in np.ndindex(*out.shape):
        out[n, i, y, x] = (weight[i] * data[n, :, y : y + height, x : x + width]).sum()
    return out


def mean(values):
    return sum(values) / len(values)


def variance(values):
    return mean([(v - mean(values)) ** 2 for v in values])


def length(values):
    return math.sqrt(sum(v * v for v in values))


def pooled(a, pool, function):
    """`function(value, values of its pool)` for every entry; `pool(index)` selects the pool."""
    out = np.zeros(a.shape)
    for index in np.ndindex(*a.shape):
        out[index] = function(a[index], [float(v) for v in np.ravel(a[pool(index)])])
    return out


def over_cases(index):
    return (slice(None), index[1])


def over_units(index):
    return (index[0],)


def per_pixel(index):
    return (index[0], slice(None), *index[2:])


def over_pixels(index):
    return (index[0], index[1])


def in_group(size):
    return lambda index: (index[0], slice(index[1] // size * size, index[1] // size * size + size))


def standard(eps):
    return lambda v, pool: (v - mean(pool)) / math.sqrt(variance(pool) + eps)


def by_square(eps):
    return lambda v, pool: v / math.sqrt(mean([p * p for p in pool]) + eps)


def normalized(pool, rule):
    """The oracle that normalizes the summed inputs over a pool; `rule(eps)` is what becomes of a value."""
    return lambda w, x, eps: pooled(summed(w, x), pool, rule(eps))


def rows(weight, function):
    """Every row or filter replaced by `function(list of its entries)`."""
    flat = [function([float(v) for v in np.ravel(row)]) for row in weight]
    return np.array(flat).reshape(weight.shape)


def unit(values):
    return [v / length(values) for v in values]


def centred(values):
    return [v - mean(values) for v in values]


def standardized(eps):
    return lambda values: [(v - mean(values)) / math.sqrt(variance(values) + eps) for v in values]


def l1(eps):
    return lambda v, pool: (
        (v - mean(pool)) / (math.sqrt(math.pi / 2) * mean([abs(p - mean(pool)) for p in pool]) + eps)
    )


def renorm(w, x, r_max, d_max, eps, **running):
    def rule(v, pool):
        s, t = math.sqrt(variance(pool) + eps), math.sqrt(running["variance"])
        r = min(max(s / t, 1 / r_max), r_max)
        d = min(max((mean(pool) - running["mean"]) / t, -d_max), d_max)
        return (v - mean(pool)) / s * r + d

    return pooled(summed(w, x), over_cases, rule)


def zca(w, x, eps):
    from scipy.linalg import sqrtm

    a = summed(w, x)
    covariance = np.cov(a.T, bias=True) + eps * np.eye(a.shape[1])
    return (a - a.mean(0)) @ np.linalg.inv(sqrtm(covariance).real)


def partial(w, x, share, eps):
    a = summed(w, x)
    k = math.ceil(a.shape[1] * share)
    return np.array([[v / math.sqrt(mean([u * u for u in row[:k]]) + eps) for v in row] for row in a])


def compressed(w, x, eps):
    """RMSNorm of the vector completed to mean 0, without its last entry."""
    full = np.array([[*row, -sum(row)] for row in summed(w, x)])
    return pooled(full, over_units, by_square(eps))[:, :-1]


def switchable(w, x, mean_weights, variance_weights, eps):
    def soft(weights):
        return [math.exp(v) / sum(math.exp(u) for u in weights) for v in weights]

    a = summed(w, x)
    out = np.zeros(a.shape)
    for index in np.ndindex(*a.shape):
        pools = [np.ravel(a[p(index)]) for p in (over_pixels, over_units, over_cases)]
        m = sum(s * p.mean() for s, p in zip(soft(mean_weights), pools, strict=True))
        v = sum(s * p.var() for s, p in zip(soft(variance_weights), pools, strict=True))
        out[index] = (a[index] - m) / math.sqrt(v + eps)
    return out


def evonorm_b0(w, x, v, eps):
    a = summed(w, x)
    out = np.zeros(a.shape)
    for index in np.ndindex(*a.shape):
        batch, instance = (math.sqrt(a[p(index)].var() + eps) for p in (over_cases, over_pixels))
        out[index] = a[index] / max(batch, v * a[index] + instance)
    return out


def evonorm_s0(w, x, v, groups, eps):
    a = summed(w, x)

    def rule(value, pool):
        return value / (1 + math.exp(-v * value)) / math.sqrt(variance(pool) + eps)

    return pooled(a, in_group(a.shape[1] // groups), rule)


def local_response(w, x, size, alpha, beta, k):
    a = summed(w, x)
    out = np.zeros(a.shape)
    for n, i in np.ndindex(*a.shape):
        near = [a[n, j] ** 2 for j in range(i - size // 2, i - size // 2 + size) if 0 <= j < a.shape[1]]
        out[n, i] = a[n, i] / (k + alpha * sum(near) / size) ** beta
    return out


def global_response(w, x, eps):
    a = summed(w, x)
    lengths = np.array([[length(np.ravel(image)) for image in case] for case in a])
    out = np.zeros(a.shape)
    for n, i in np.ndindex(*a.shape[:2]):
        out[n, i] = a[n, i] * lengths[n, i] / (mean(lengths[n]) + eps) + a[n, i]
    return out


def grouped_standardized(w, x, groups, eps, group_eps):
    a = summed(rows(w, standardized(eps)), x)
    return pooled(a, in_group(a.shape[1] // groups), standard(group_eps))


def spectral(w, x):
    flat = w.reshape(len(w), -1)
    return summed(w, x) / math.sqrt(max(np.linalg.eigvalsh(flat @ flat.T)))


def propagation(w, x):
    a = summed(rows(w, unit), x)
    rule = np.vectorize(lambda v: (max(v, 0) - 1 / math.sqrt(2 * math.pi)) / math.sqrt(0.5 - 0.5 / math.pi))
    return rule(a)


def demodulated(w, x, style, eps):
    new = np.zeros(w.shape)
    for i, d, *k in np.ndindex(*w.shape):
        scale = sum((style * (j + 1)) ** 2 * (w[i, j] ** 2).sum() for j in range(w.shape[1]))
        new[(i, d, *k)] = style * (d + 1) * w[(i, d, *k)] / math.sqrt(scale + eps)
    return summed(new, x)


def cosine(w, x, eps, input_eps):
    return np.array(
        [[np.dot(u, v) / (max(length(u), eps) * max(length(v), input_eps)) for u in w] for v in x]
    )


def centred_cosine(w, x, eps, input_eps):
    return cosine(rows(w, centred), rows(x, centred), eps, input_eps)


def softmax(w, x):
    return np.array([[math.exp(v) / sum(math.exp(u) for u in row) for v in row] for row in summed(w, x)])


def logits(rule, scale):
    """The oracle of attention logits whose queries and keys are replaced by `rule(list)`."""

    def oracle(w, x, **options):
        half = len(w) // 2
        query, key = (rows(summed(part, x), rule(**options)) for part in (w[:half], w[half:]))
        return np.array([[scale(half, **options) * np.dot(q, k) for k in key] for q in query])

    return oracle


def by_root(half, **_):
    return 1 / math.sqrt(half)


def rms(eps):
    return lambda values: [v / math.sqrt(mean([u * u for u in values]) + eps) for v in values]


def post(w, x, alpha, eps):
    return rows(alpha * x + summed(w, x), standardized(eps))


def sandwich(w, x, eps, input_eps):
    return x + rows(summed(w, rows(x, standardized(input_eps))), standardized(eps))


def peri(w, x, eps, input_eps):
    return x + rows(summed(w, rows(x, rms(input_eps))), rms(eps))


def ngpt(w, x, alpha):
    state = rows(x, unit)
    return rows(state + alpha * (rows(summed(w, state), unit) - state), unit)


BATCH, LAYER = normalized(over_cases, standard), normalized(over_units, standard)
ORACLES = {
    "batch norm": BATCH,
    "batch norm, conv": BATCH,
    "batch norm, eval": lambda w, x, mean, variance, eps: (summed(w, x) - mean) / math.sqrt(variance + eps),
    "L1 batch norm": normalized(over_cases, l1),
    "mean-only batch norm": lambda w, x: pooled(summed(w, x), over_cases, lambda v, p: v - mean(p)),
    "batch renorm": renorm,
    "decorrelated (ZCA) batch norm": zca,
    "power norm, batch": normalized(over_cases, by_square),
    "power norm, running": lambda w, x, mean_square: summed(w, x) / math.sqrt(mean_square),
    "layer norm": LAYER,
    "layer norm [C, H, W], conv": LAYER,
    "layer norm per pixel, conv": normalized(per_pixel, standard),
    "layer norm, centre only": lambda w, x: pooled(summed(w, x), over_units, lambda v, p: v - mean(p)),
    "layer norm, scale only": lambda w, x, eps: pooled(
        summed(w, x), over_units, lambda v, p: v / math.sqrt(variance(p) + eps)
    ),
    "layer norm, detached": LAYER,
    "RMSNorm": normalized(over_units, by_square),
    "pRMSNorm": partial,
    "CRMSNorm": compressed,
    "ScaleNorm": lambda w, x, eps: pooled(
        summed(w, x), over_units, lambda v, p: math.sqrt(len(p)) * v / max(length(p), eps)
    ),
    "group norm": lambda w, x, groups, eps: pooled(summed(w, x), in_group(3), standard(eps)),
    "group norm, conv": lambda w, x, groups, eps: pooled(summed(w, x), in_group(3), standard(eps)),
    "instance norm, conv": normalized(over_pixels, standard),
    "switchable norm, conv": switchable,
    "filter response norm + TLU, conv": lambda w, x, tau, eps: pooled(
        summed(w, x), over_pixels, lambda v, p: max(by_square(eps)(v, p), tau)
    ),
    "EvoNorm B0, conv": evonorm_b0,
    "EvoNorm S0, conv": evonorm_s0,
    "local response norm": local_response,
    "local response norm, k = 0": local_response,
    "local response norm, k = 0, beta = 1/2": local_response,
    "GRN, conv": global_response,
    "weight norm": lambda w, x: summed(rows(w, unit), x),
    "weight norm, conv": lambda w, x: summed(rows(w, unit), x),
    "centred weight norm": lambda w, x: summed(rows(rows(w, centred), unit), x),
    "weight standardization": lambda w, x, eps: summed(rows(w, standardized(eps)), x),
    "weight standardization, conv": lambda w, x, eps: summed(rows(w, standardized(eps)), x),
    "weight standardization + group norm": grouped_standardized,
    "weight standardization + group norm, conv": grouped_standardized,
    "spectral norm": spectral,
    "spectral norm, conv": spectral,
    "norm propagation": propagation,
    "FixNorm": lambda w, x, length: length**2 * cosine(w, x, 0, 0),
    "weight demodulation": demodulated,
    "weight demodulation, conv": demodulated,
    "cosine norm": cosine,
    "centred cosine norm": centred_cosine,
    "DyT": lambda w, x, alpha: np.vectorize(math.tanh)(alpha * summed(w, x)),
    "Derf": lambda w, x, alpha, shift: np.vectorize(math.erf)(alpha * summed(w, x) + shift),
    "softmax": softmax,
    "none": summed,
    "attention logits, no norm": logits(lambda: list, by_root),
    "QK-norm, L2": logits(lambda gain, eps: unit, lambda half, gain, eps: gain),
    "QK-norm, RMS": logits(rms, by_root),
    "QK-norm, LN": logits(standardized, by_root),
    "pre-norm": lambda w, x, eps: summed(w, rows(x, standardized(eps))),
    "post-norm": post,
    "DeepNorm": post,
    "sandwich norm": sandwich,
    "peri-norm": peri,
    "nGPT, re-parametrized": lambda w, x, alpha: ngpt(rows(w, unit), x, alpha),
    "nGPT, projected after the step": ngpt,
}
