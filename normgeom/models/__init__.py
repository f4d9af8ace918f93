"""Recurrent cells of the paper, layer-normalized where their placement says."""

from normgeom.models.cells import DRAWLSTMCell, LNGRUCell, LNLSTMCell, LNRNNCell
from normgeom.models.convert import from_torch, to_torch
from normgeom.models.per_example import per_example_gradients
from normgeom.models.placement import Placement
from normgeom.models.recurrent import DRAWLSTM, LNGRU, LNLSTM, LNRNN
from normgeom.models.sigmas import sigmas

__all__ = [
    "DRAWLSTM",
    "LNGRU",
    "LNLSTM",
    "LNRNN",
    "DRAWLSTMCell",
    "LNGRUCell",
    "LNLSTMCell",
    "LNRNNCell",
    "Placement",
    "from_torch",
    "per_example_gradients",
    "sigmas",
    "to_torch",
]
