"""Small layers with known symmetries, written by hand."""

import torch
import torch.nn.functional as F


def standardized(a, axis):
    centred = a - a.mean(axis, keepdim=True)
    return centred / centred.square().mean(axis, keepdim=True).sqrt()


def group_norm(groups):
    def normalized(weight, data):
        summed = data @ weight.T
        return standardized(summed.reshape(len(data), groups, -1), 2).reshape(summed.shape)

    return normalized


def weight_standardization(weight, data):
    return data @ standardized(weight, 1).T


def spectral_norm(weight, data):
    return data @ (weight / torch.linalg.matrix_norm(weight, 2)).T


def softmax(weight, data):
    return torch.softmax(data @ weight.T, 1)


def pre_norm(weight, data):
    return F.layer_norm(data, data.shape[1:], eps=0.0) @ weight.T


def post_norm(weight, data):
    return F.layer_norm(data + data @ weight.T, data.shape[1:], eps=0.0)


def plain(weight, data):
    return data @ weight.T


def lengths(weight, data):
    return plain(weight, data).norm(dim=1)


def row_space(weight, data):
    return data @ (weight.T @ torch.linalg.solve(weight @ weight.T, weight))


def doubly_centred(weight, data):
    centred = weight - weight.mean(1, keepdim=True)
    centred = centred - centred.mean(0)
    return data @ (centred / centred.norm()).T


def hidden_eps(eps):
    return lambda weight, data: F.layer_norm(data @ weight.T, (len(weight),), eps=eps)


def in_float32(weight, data):
    return F.layer_norm((data @ weight.T).float(), (len(weight),), eps=0.0).double()


def detached_layer_norm(weight, data):
    summed = data @ weight.T
    spread = summed.std(1, unbiased=False, keepdim=True).detach()
    return (summed - summed.mean(1, keepdim=True)) / spread


def batch_renorm(units):
    """Batch Renorm with running statistics 0.2 and 1.3 for these units, batch norm for the others."""

    def normalized(weight, data):
        summed = data @ weight.T
        mean, spread = summed.mean(0), summed.std(0, unbiased=False)
        renormalized = torch.arange(len(weight)) < units
        r = torch.where(renormalized, spread / 1.3, 1.0).detach()
        d = torch.where(renormalized, (mean - 0.2) / 1.3, 0.0).detach()
        return (summed - mean) / spread * r + d

    return normalized


def attention_logits(params, data):
    return (data @ params["query"].T) @ (data @ params["key"].T).T


def qk_norm(params, data):
    query, key = (F.normalize(data @ params[name].T, dim=1, eps=0.0) for name in ("query", "key"))
    return query @ key.T


def dyt(params, data):
    return torch.tanh(params["alpha"] * (data @ params["weight"].T))


def gained(params, data):
    return params["gain"] * (data @ params["weight"].T)


def two_layers(params, data):
    return data @ params["up"].T @ params["down"].T


def relu_network(params, data):
    return torch.relu(data @ params["up"].T) @ params["down"].T


def determinant(params, data):
    return torch.linalg.det(params["w"]) * data.sum(1)


def powers(params, data):
    return params["a"] ** 2 * params["b"] ** 3 * data.sum(1)


def shifted_pair(params, data):
    return (params["w"][0] + 3) * params["w"][1] * data.sum(1)


def empty(**shapes):
    return {name: torch.empty(shape) for name, shape in shapes.items()}
