"""Recurrent cells of the paper, layer-normalized where their placement says, and models made of them."""

from normgeom.models.cells import DRAWLSTMCell, LNGRUCell, LNLSTMCell, LNRNNCell
from normgeom.models.char_lm import CharLM
from normgeom.models.convert import from_torch, to_torch
from normgeom.models.per_example import per_example_gradients
from normgeom.models.placement import Placement
from normgeom.models.recurrent import DRAWLSTM, LNGRU, LNLSTM, LNRNN
from normgeom.models.row_digits import RowDigits
from normgeom.models.sigmas import sigmas

__all__ = [
    "DRAWLSTM",
    "LNGRU",
    "LNLSTM",
    "LNRNN",
    "CharLM",
    "DRAWLSTMCell",
    "LNGRUCell",
    "LNLSTMCell",
    "LNRNNCell",
    "Placement",
    "RowDigits",
    "from_torch",
    "per_example_gradients",
    "sigmas",
    "to_torch",
]
