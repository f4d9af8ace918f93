"""Slow, obvious references, written without normgeom."""

import math

import mpmath
import torch

# --- norms and Table 1 -------------------------------------------------------------------------------


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


# --- families and GLMs ---------------------------------------------------------------------------------


def enumerated_expectations(family, eta, far):
    """E[score score^T] and E[log p/q], summed over every value y that has any weight to speak of."""
    if not family.independent:
        values = [torch.full(eta.shape[:-1], k) for k in range(eta.shape[-1])]
        return _expectations(family, eta, far, values)
    per_output = [
        _expectations(family, e[:, None], f[:, None], _counts(e)) for e, f in zip(eta.T, far.T, strict=True)
    ]
    fishers, kls = zip(*per_output, strict=True)
    return torch.diag_embed(torch.cat([f[:, :, 0] for f in fishers], -1)), sum(kls)


def _counts(e):
    return [torch.full((len(e), 1), float(k), dtype=e.dtype) for k in range(250)]


def _expectations(family, eta, far, values):
    fisher, kl = 0.0, 0.0
    for y in values:
        try:
            family.check_targets(y, eta)
        except ValueError:
            break
        score = torch.func.grad(lambda e, y=y: family.log_prob(y, e).sum())(eta)
        p = family.log_prob(y, eta).exp()
        fisher = fisher + p[:, None, None] * score[:, :, None] * score[:, None, :]
        kl = kl + p * (family.log_prob(y, eta) - family.log_prob(y, far))
    return fisher, kl


def integrated_expectations(family, eta, far):
    """E[score score^T] and E[log p/q] of one case by the trapezoidal rule in log y or y."""
    positive = "Gamma" in repr(family)
    grid = (
        torch.linspace(-30, 8, 40001, dtype=eta.dtype)
        if positive
        else torch.linspace(-20, 20, 40001).double()
    )
    y, weight = (grid.exp(), grid.exp()) if positive else (grid, torch.ones_like(grid))
    y, wide = y[:, None], eta.expand(len(grid), -1)
    p = family.log_prob(y, wide).exp() * weight
    score = torch.func.grad(lambda e: family.log_prob(y, e).sum())(wide)
    outer = p[:, None, None] * score[:, :, None] * score[:, None, :]
    gap = family.log_prob(y, wide) - family.log_prob(y, far.expand_as(wide))
    return torch.trapezoid(outer, grid, dim=0), torch.trapezoid(p * gap, grid, dim=0)


def kl_in_50_digits(name, eta_p, eta_q):
    """The Bregman divergence of the cumulant, in 50 digits."""
    log, exp = mpmath.log, mpmath.exp
    with mpmath.workdps(50):
        p, q = [mpmath.mpf(e) for e in eta_p], [mpmath.mpf(e) for e in eta_q]
        if name == "categorical":
            total = sum(map(exp, p))
            mean = [exp(e) / total for e in p]
            moved = sum(m * (b - a) for m, a, b in zip(mean, p, q, strict=True))
            return float(log(sum(map(exp, q))) - log(total) - moved)
        cumulant, slope = {
            "bernoulli": (lambda e: log(1 + exp(e)), lambda e: 1 / (1 + exp(-e))),
            "poisson": (exp, exp),
            "gamma": (lambda e: -2.5 * log(-e), lambda e: -2.5 / e),
            "negative binomial": (lambda e: -2.5 * log(1 - exp(e)), lambda e: 2.5 * exp(e) / (1 - exp(e))),
        }[name]
        return float(sum(cumulant(b) - cumulant(a) - slope(a) * (b - a) for a, b in zip(p, q, strict=True)))


def dense_glm_jacobian(model, params, data):
    """The Jacobian (cases, outputs, parameters) by a loop of reverse passes, neuron-major."""
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    rows = []
    for output in model(leaves, data).flatten():
        grads = torch.autograd.grad(output, list(leaves.values()), retain_graph=True, allow_unused=True)
        filled = [
            g if g is not None else torch.zeros_like(v) for g, v in zip(grads, leaves.values(), strict=True)
        ]
        rows.append(torch.cat([g.reshape(len(params["bias"]), -1) for g in filled], 1).flatten())
    return torch.stack(rows).reshape(len(data), -1, len(rows[0]))


def dense_glm_case_fishers(model, params, data):
    """J_n^T I_n J_n, with I_n by the forms that the family tests check."""
    jacobian = dense_glm_jacobian(model, params, data)
    return jacobian.mT @ model.family.fisher(model(params, data)) @ jacobian


def dense_glm_fisher(model, params, data):
    """The mean over cases."""
    return dense_glm_case_fishers(model, params, data).mean(0)


# --- the Fisher matrix of a network --------------------------------------------------------------------


def plain_jacobian(module, data):
    """The derivative of every output in every free parameter, one backward pass each: (cases, outputs, P)."""
    params = [p for p in module.parameters() if p.requires_grad]
    inputs = data if isinstance(data, tuple) else (data,)
    eta = module(*inputs)
    eta = eta[0] if isinstance(eta, tuple) else eta
    rows = []
    for entry in eta.flatten():
        grads = torch.autograd.grad(entry, params, retain_graph=True, allow_unused=True)
        pairs = zip(grads, params, strict=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if g is None else g.to_dense()).flatten() for g, p in pairs])
        )
    return eta.detach(), torch.stack(rows).reshape(*eta.shape, -1)


def plain_case_fishers(module, data, family):
    """J^T I J of every case, tensor-major, summed over positions: (cases, P, P)."""
    eta, jacobian = plain_jacobian(module, data)
    information = family.fisher(eta)
    each = torch.einsum("...ip,...ij,...jq->...pq", jacobian, information, jacobian)
    return each.sum(tuple(range(1, eta.ndim - 1))) if eta.ndim > 2 else each
