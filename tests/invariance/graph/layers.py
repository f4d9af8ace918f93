"""Layers for the engines that see a layer's code: every norm of torch, and layers written by hand."""

import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import normgeom as ng
from normgeom.invariance import graph, numeric
from normgeom.invariance._points import Sizes


def small_images(module):
    return ng.on_summed_inputs(module, kernel=(2, 1, 1), spatial=(3, 2, 2))


OF_TORCH = {
    "LayerNorm": lambda: nn.LayerNorm(5),
    "RMSNorm": lambda: nn.RMSNorm(5),
    "GroupNorm": lambda: nn.GroupNorm(2, 6),
    "BatchNorm1d": lambda: nn.BatchNorm1d(5),
    "BatchNorm1d eval": lambda: nn.BatchNorm1d(5).eval(),
    "BatchNorm2d": lambda: nn.BatchNorm2d(3),
    "BatchNorm2d eval": lambda: nn.BatchNorm2d(3).eval(),
    "BatchNorm3d": lambda: small_images(nn.BatchNorm3d(3)),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(3),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(3),
    "InstanceNorm3d": lambda: small_images(nn.InstanceNorm3d(3)),
    "LocalResponseNorm": lambda: nn.LocalResponseNorm(2),
    "LayerNorm [C,H,W]": lambda: nn.LayerNorm([3, 3, 3]),
    "linear, layer norm": lambda: nn.Sequential(nn.Linear(4, 5, False), nn.LayerNorm(5)),
    "linear, batch norm": lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)),
    "conv, batch norm": lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(4, 5)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 5)).eval(),
}


def softmax(weight, data):
    return torch.softmax(data @ weight.T, 1)


def cosine(weight, data):
    return F.normalize(data, dim=1) @ F.normalize(weight, dim=1).T


def outside_the_root(weight, data):
    summed = data @ weight.T
    return (summed - summed.mean(1, keepdim=True)) / (summed.std(1, keepdim=True) + 1e-5)


def filter_response(weight, data):
    summed = data @ weight.T
    return torch.relu(summed * torch.rsqrt(summed.pow(2).mean(1, keepdim=True) + 1e-6) - 0.3)


def mean_size(weight, data):
    summed = data @ weight.T
    return F.leaky_relu(summed / summed.abs().mean(1, keepdim=True))


def largest(weight, data):
    summed = data @ weight.T
    return torch.tanh(summed / summed.abs().amax(1, keepdim=True))


def query_key(weight, data):
    queries, keys = (F.layer_norm(data @ w.T, (3,)) for w in (weight[:3], weight[3:]))
    return queries @ keys.T


def pre_norm(weight, data):
    return F.layer_norm(data, (data.shape[1],)) @ weight.T


def standardized(weight, data):
    centred = weight - weight.mean(1, keepdim=True)
    return data @ (centred / centred.square().mean(1, keepdim=True).sqrt()).T


def whitened(weight, data):
    summed = data @ weight.T
    centred = summed - summed.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    return centred @ (vectors / values.sqrt()) @ vectors.T


def wrong_axis(weight, data):
    summed = data @ weight.T
    return (summed - summed.mean(0)) / summed.std(1, keepdim=True)


def variance_not_deviation(weight, data):
    summed = data @ weight.T
    return (summed - summed.mean(1, keepdim=True)) / summed.var(1, keepdim=True)


def bias_before(weight, data):
    return F.rms_norm(data @ weight.T + torch.arange(5.0), (5,))


BY_HAND = {
    f.__name__: (lambda f=f: f)
    for f in (softmax, cosine, outside_the_root, filter_response, mean_size, largest, pre_norm, standardized,
              wrong_axis, variance_not_deviation, bias_before)
} | {
    "query_key": lambda: ng.function_layer(query_key, units=6, name="query_key"),
    "whitened": lambda: ng.function_layer(whitened, units=3, name="whitened"),
}  # fmt: skip

FAMILY = OF_TORCH | BY_HAND
ACTIONS = (*ng.TABLE_1, ng.DatasetShift, ng.WeightVectorRecenter, ng.CaseNegativeRescale)


@functools.cache
def known(name):
    """The layer of a name in the family with its graph, and what 50 digits say of it."""
    layer, seen = exported(FAMILY[name]())
    return layer, seen, verdicts(graph.judge, layer, seen)


def exported(subject):
    layer = ng.as_layer(subject)
    return layer, graph.export(layer, *Sizes.of(layer, None, numeric.USUAL).shapes(layer))


def verdicts(judge, layer, seen, actions=ACTIONS):
    generator = torch.Generator().manual_seed(1)
    return [judge(layer, action, generator=generator, graph=seen) for action in actions]
