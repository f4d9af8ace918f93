"""The golden vectors of the cells, as cells of normgeom with their parameters set."""

import json
from pathlib import Path

import torch

import normgeom as ng

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "cells.json").read_text())
KINDS = {
    "ln_rnn": (ng.LNRNN, None),
    "lstm": (ng.LNLSTM, ng.Placement.none()),
    "ln_lstm": (ng.LNLSTM, None),
    "gru": (ng.LNGRU, ng.Placement.none()),
    "ln_gru": (ng.LNGRU, None),
    "draw_ln_lstm": (ng.DRAWLSTM, None),
}


def parameters(kind, p):
    """Names of ours -> golden arrays; those that are not named are 0."""
    lstm = {"weight_input": p["lstm_Wx"], "weight_recurrent": p["lstm_Wh"]}
    gru = {"weight_input": p["gru_Wx"] + p["gru_W"], "weight_recurrent": p["gru_Wh"] + p["gru_U"]}
    return {
        "ln_rnn": {
            "weight_input": p["rnn_Wx"],
            "weight_recurrent": p["rnn_Wh"],
            "norm_joint.gain": p["rnn_g"],
            "norm_joint.bias": p["rnn_b"],
        },
        "lstm": lstm | {"norm_input.bias": p["lstm_b"]},
        "ln_lstm": lstm
        | {
            "bias": p["lstm_b"],
            "norm_recurrent.gain": p["lstm_a1"],
            "norm_recurrent.bias": p["lstm_b1"],
            "norm_input.gain": p["lstm_a2"],
            "norm_input.bias": p["lstm_b2"],
            "norm_cell.gain": p["lstm_a3"],
            "norm_cell.bias": p["lstm_b3"],
        },
        "gru": gru,
        "ln_gru": gru
        | {
            "norm_recurrent.gain": p["gru_a1"] + p["gru_a4"],
            "norm_recurrent.bias": p["gru_b1"] + p["gru_b4"],
            "norm_input.gain": p["gru_a2"] + p["gru_a3"],
            "norm_input.bias": p["gru_b2"] + p["gru_b3"],
        },
        "draw_ln_lstm": lstm
        | {"norm_input.bias": p["lstm_b"], "norm_cell.gain": p["draw_a"], "norm_cell.bias": p["draw_b"]},
    }[kind]


def layer(case):
    """The layer of a golden case, its input (T, D), its initial state, and the outputs wanted (T, ...)."""
    p = GOLDEN["params"][str(case["seed"])]
    kind, placement = KINDS[case["kind"]]
    model = kind(GOLDEN["D"], GOLDEN["H"], placement=placement, eps=case["eps"], dtype=torch.float64)
    given = parameters(case["kind"], p)
    state = {
        name: torch.tensor(given.get(name, [0.0] * len(value)), dtype=torch.float64)
        for name, value in model.layer0.state_dict().items()
    }
    model.layer0.load_state_dict(state)
    x, h, c = (torch.tensor(p[name], dtype=torch.float64) for name in ("x", "h0", "c0"))
    start = (h[None], c[None]) if model.layer0.has_cell_state else h[None]
    return model, x, start, torch.tensor(case["outputs"], dtype=torch.float64)
