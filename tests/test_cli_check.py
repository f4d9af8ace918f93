import json

import pytest

LAYERS = """
import torch
from torch import nn

import normgeom as ng


class MyNorm(nn.Module):
    def __init__(self, units):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(units))

    def forward(self, a):
        centred = a - a.mean(-1, keepdim=True)
        return self.gain * centred / (centred.abs().mean(-1, keepdim=True) + 1e-5)


class Two:
    def __init__(self, one, other):
        pass


def shifted(weight, data):
    a = data @ weight.T
    return a - a.mean(1, keepdim=True)


def unbiased(weight, data):
    a = data @ weight.T
    return (a - a.mean(1, keepdim=True)) / (a.var(1, keepdim=True) + 1e-5).sqrt()


def detached(weight, data):
    a = data @ weight.T
    return a / (a.square().mean(1, keepdim=True) + 1e-5).sqrt().detach()


def third_axis(weight, data):
    return (data @ weight.T).mean(3)


def width(width):
    return nn.LayerNorm(width)


norm = ng.RMSNorm()


def make():
    return nn.LayerNorm(4)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file of layers, which is the current one."""
    (tmp_path / "my_layers.py").write_text(LAYERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_module_s_row_with_its_line_and_what_follows(folder, normgeom):
    code, out, _ = normgeom("check", "my_layers:MyNorm", "--units", "4", "--against", "layer_norm")
    assert code == 0
    assert "+ eps (1e-05), my_layers.py:15" in out
    assert "Against layer norm: the same row." in out
    assert "W as a whole (not its rows) is scale invariant" in out
    assert "What doubling changes with this layer's eps" in out


def test_a_path_and_json(folder, normgeom):
    code, out, _ = normgeom("check", "my_layers.py:MyNorm", "--units", "4", "--json")
    found = json.loads(out)
    assert code == 0
    assert [cell["kind"] for cell in found["cells"]][1:3] == ["invariant", "not invariant"]
    changes = found["eps"][0]["changes"]
    assert changes[1] == pytest.approx(10 * changes[0], rel=0.01)  # eps beside a length, not its square


def test_a_function_that_takes_nothing_makes_the_layer(folder, normgeom):
    code, out, _ = normgeom("check", "my_layers:make", "--latex")
    assert code == 0
    assert out.startswith("LayerNorm & Up to eps & Invariant")


def test_one_row_of_latex(folder, normgeom):
    code, out, _ = normgeom("check", "my_layers:norm", "--latex")
    assert code == 0
    assert out.strip() == r"RMSNorm & Invariant & No & No & Invariant & No & Invariant \\"


def test_what_the_row_hides_is_printed(folder, normgeom):
    said = "the outputs have variance (n - 1)/n over the 5 units"
    assert f"Note: {said}" in normgeom("check", "my_layers:unbiased")[1]
    assert said in json.loads(normgeom("check", "my_layers:unbiased", "--json")[1])["remarks"][0]
    _, out, _ = normgeom("check", "my_layers:detached")
    assert "the gradient identity fails" in out
    assert "(detached at my_layers.py:35)" in out


def test_claims_serve_in_ci(folder, normgeom):
    right = "WeightMatrixRescale,DatasetRescale,CaseRescale"
    assert normgeom("check", "my_layers:norm", "--claims", right)[0] == 0
    code, _, err = normgeom(
        "check", "my_layers:norm", "--claims", "WeightMatrixRescale,DatasetRecenter,CaseRescale"
    )
    assert code == 1
    assert "DatasetRecenter is claimed, but the verdict is: not invariant." in err
    assert "DatasetRescale holds, but is not claimed: add it to --claims." in err
    assert normgeom("check", "my_layers:shifted", "--claims", "none")[0] == 1


def test_differences_are_named(folder, normgeom):
    _, out, _ = normgeom("check", "my_layers:norm", "--against", "batch-norm")
    assert "dataset re-centering: RMSNorm No, batch norm Invariant" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["my_layers:MyNorm"], "needs units to be made. Give --units."),
        (["my_layers:Two"], "Write a name for the object"),
        (["my_layers:Other"], "it defines"),
        (["torch.nn:LayerNormm"], "torch.nn has no 'LayerNormm'; it has LayerNorm"),
        (
            ["my_layers:third_axis"],
            "of shapes (5, 4) and (6, 4); it raised IndexError: Dimension out",
        ),
        (["my_layers:width"], "must be a function of (weight, data); got width(width)."),
        (["none.py:x"], "no file none.py"),
        (["my_layers:norm", "--claims", "Rescale"], "--claims must be among WeightMatrixRescale"),
        (["my_layers:norm", "--against", "layer_nrom"], "close are"),
        (["my_layers:norm", "--json", "--latex"], "give one"),
        (["my_layers:norm", "--dtype", "int8"], "--dtype must be among"),
    ],
)
def test_errors_are_one_line(folder, normgeom, arguments, text):
    code, _, err = normgeom("check", *arguments)
    assert code == 2
    assert text in err
    assert err.startswith("error:")
