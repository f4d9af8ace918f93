"""Anything that maps (weight, data) to outputs, as one kind of object."""

from normgeom.layers.as_layer import as_layer, frozen_batch_norm
from normgeom.layers.constructors import (
    function_layer,
    on_summed_inputs,
    owning_weight,
    reparametrized,
)
from normgeom.layers.convolution import DENSE, Convolution
from normgeom.layers.function_layer import FunctionLayer
from normgeom.layers.module_layer import ModuleLayer, OnSummedInputs, OwningWeight
from normgeom.layers.norm_layer import NormLayer
from normgeom.layers.protocol import Layer, convolution_of

__all__ = [
    "DENSE",
    "Convolution",
    "FunctionLayer",
    "Layer",
    "ModuleLayer",
    "NormLayer",
    "OnSummedInputs",
    "OwningWeight",
    "as_layer",
    "convolution_of",
    "frozen_batch_norm",
    "function_layer",
    "on_summed_inputs",
    "owning_weight",
    "reparametrized",
]
