import json

import matplotlib.pyplot as plt
import pytest
import torch

import normgeom as ng
from analyses import _subjects, guessers
from analyses._guesses import adamp_view, by_axes, by_name
from analyses._run import Options
from analyses._transformers_models import MISSING
from tests.analyses.training_runs import files_of
from tests.golden.scan_models import reference

pytestmark = pytest.mark.filterwarnings("ignore")


def test_files_are_written_and_the_figure_is_drawn_from_them(tmp_path):
    files = files_of("guessers", tmp_path)
    assert set(files) == {f"guessers.{kind}" for kind in ("json", "md", "tex", "pdf", "png")}
    assert all(ord(c) < 128 for c in (tmp_path / "guessers.tex").read_text())
    saved = json.loads((tmp_path / "guessers.json").read_text())
    figure = guessers.draw(saved["rows"])
    assert len(figure.axes) == 2
    plt.close(figure)


def test_adamp_takes_slices_first_and_then_the_tensor():
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert adamp_view(weight, torch.tensor([[0.0, 1.0], [1.0, 0.0]])) == "channel"
    assert adamp_view(weight, torch.tensor([[1.0, 0.0], [0.0, -1.0]])) == "layer"
    assert adamp_view(weight, weight) is None
    assert adamp_view(weight[0], torch.tensor([0.0, 1.0])) is None


@pytest.mark.parametrize(("delta", "view"), [(0.1, None), (0.2, "layer")])
def test_adamp_s_bound_is_delta_over_the_root_of_the_size(delta, view):
    weight, other = torch.ones(4, 4), torch.ones(4, 4)
    other[:2] = -1
    grad = other + 0.04 * weight  # its cosine is 0.04, between 0.1/4 and 0.2/4
    assert adamp_view(weight, grad, delta=delta) == view


def test_a_random_direction_passes_one_time_in_twelve():
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(4000, 2, 5, 7, generator=generator)
    assert sum(adamp_view(w, g) == "layer" for w, g in draws) / 4000 == pytest.approx(0.08, abs=0.015)


def test_the_rules_by_shape_and_name():
    assert by_axes(torch.ones(2, 3))
    assert not by_axes(torch.ones(3))
    assert [by_name(name) for name in ("h.0.ln_1.weight", "norm.weight", "fc.bias")] == [True, False, False]


def test_what_the_map_says_in_adamp_s_views():
    model, batch = reference("batch norm")
    found = ng.scan(model, batch)
    own = dict(model.named_parameters())
    assert guessers.free_views(found, "c1.weight", own["c1.weight"]) == {"layer", "channel"}
    assert guessers.free_views(found, "fc.weight", own["fc.weight"]) == set()
    assert guessers.free_views(found, "c2.bias", own["c2.bias"]) is None
    model, batch = reference("LN-LSTM")
    assert guessers.free_views(ng.scan(model, batch), "wx.weight", model.wx.weight) == {"layer"}


def test_the_counts():
    subject = _subjects.subjects(Options(None, quick=True))[0][0]
    row = {
        "model": "m",
        "tensor": "t",
        "minibatches": 4,
        "wrongly": 0,
        guessers.AXES: True,
        guessers.NAME: True,
    }
    own = [
        {**row, "alone": True, "together": False, "taken": 3},
        {**row, "alone": False, "together": True, "taken": 1, "wrongly": 1, guessers.NAME: False},
        {**row, "alone": False, "together": False, "taken": 2, "wrongly": 2},
    ]
    found = {guesser: guessers.counted(subject, own, guesser) for guesser in guessers.GUESSERS}
    counts = {g: (one["false positives"], one["false negatives"]) for g, one in found.items()}
    assert counts == {guessers.COSINE: (0.75, 1.0), guessers.AXES: (2.0, 0.0), guessers.NAME: (1.0, 1.0)}


def test_without_transformers_the_rest_is_done_and_said(monkeypatch):
    monkeypatch.setattr(_subjects, "is_installed", lambda: False)
    found, left_out = _subjects.subjects(Options(None, quick=True))
    assert [one.name for one in found] == ["pre-LN", "batch norm", "LN-LSTM"]
    assert left_out == f"Left out: GPT-2, ResNet-50: {MISSING}."
