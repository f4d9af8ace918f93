import json

import numpy as np
import pytest
import torch

import normgeom as ng

MODELS = """
from dataclasses import dataclass
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = make()

    def forward(self, x):
        hidden = self.net[0](x)
        return {"main": self.net(x), "hidden": hidden}


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.norm = nn.Embedding(50, 6), nn.LayerNorm(6)

    def forward(self, tokens):
        return self.norm(self.table(tokens)).tanh()


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = lambda: nn.ModuleDict({"a_projection_with_a_rather_long_name": nn.Linear(4, 4)})
        self.the_layers_of_the_encoder = nn.ModuleList(layer() for _ in range(3))

    def forward(self, x):
        for layer in self.the_layers_of_the_encoder:
            x = layer["a_projection_with_a_rather_long_name"](x).tanh()
        return x


net = make()
two = Two()
pair = (lambda params, x: x @ params["w"].T, {"w": torch.ones(2, 4)})


def batch():
    return {"x": torch.ones(3, 4).cumsum(0).cumsum(1).sin()}


def broken():
    raise RuntimeError("no batch today")
"""

LABEL = "1.weight^+1 1.bias^+1 3.weight^-1"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file of models and a file of data, which is the current one."""
    (tmp_path / "scan_these.py").write_text(MODELS)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(9, 4)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scanned(normgeom, *arguments):
    code, out, err = normgeom("scan", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("name", ["make", "net"])
@pytest.mark.parametrize("source", ["8x4", "x.npy"])
def test_a_factory_or_an_instance_on_a_shape_or_a_file(normgeom, folder, name, source):
    found = scanned(normgeom, f"scan_these:{name}", "--input", source)
    assert (found["nullity"], [one["label"] for one in found["joint"]]) == (2, [LABEL])


def test_the_numbers_are_those_of_scan(normgeom, folder):
    namespace = {}
    exec(MODELS, namespace)
    generator = torch.Generator().manual_seed(3)
    batch = torch.randn(8, 4, generator=generator, dtype=torch.float64).float()
    found = ng.scan(namespace["make"](), batch, generator=generator)
    assert scanned(normgeom, "scan_these:make", "--input", "8x4", "--seed", "3") == json.loads(
        found.to_json()
    )


def test_a_callable_and_a_selector(normgeom, folder):
    arguments = ("scan_these:two", "--input", "scan_these:batch")
    assert scanned(normgeom, *arguments)["nullity"] == 1
    assert scanned(normgeom, *arguments, "--select", "main")["nullity"] == 2
    code, _, err = normgeom("scan", *arguments, "--select", "other")
    assert (code, "has no 'other'; it has main, hidden" in err) == (2, True)


def test_whole_numbers_and_the_mode(normgeom, folder):
    found = scanned(normgeom, "scan_these:Words", "--input", "4x7<50", "--mode", "eval", "--dtype", "float32")
    assert (found["mode"], found["nullity"]) == ("eval", 1)


def test_the_printed_page_and_latex(normgeom, folder):
    code, out, err = normgeom("scan", "scan_these.py:make", "--input", "8x4")
    assert (code, err) == (0, "")
    assert f"gain/next weight pair (by unit): {LABEL}" in out
    assert "nullity 2: 1 blocks can be scaled by themselves" in out
    assert "every unit can have a factor" not in out
    code, out, err = normgeom("scan", "scan_these.py:make", "--input", "8x4", "--words")
    assert (code, "the output of 1 is read by 3.weight alone; every unit can have a factor" in out) == (
        0,
        True,
    )
    code, out, err = normgeom("scan", "scan_these.py:make", "--input", "8x4", "--latex")
    assert (code, err, out.count(r"\toprule")) == (0, "", 2)


def test_layers_that_repeat_are_one_row_and_no_name_is_cut(normgeom, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = normgeom("scan", "scan_these:Deep", "--input", "8x4")
    assert (code, out.count("weight"), out.count("bias")) == (0, 1, 1)
    name = "".join(
        line.split()[0] for line in out.splitlines()[3:] if line.startswith((" the", " _", " name"))
    )
    assert name == "the_layers_of_the_encoder.0–2.a_projection_with_a_rather_long_name"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scan_these:make", "--input", "8by4"), "--input must be a shape such as 8x3x32x32 or 4x16<50"),
        (("scan_these:make", "--input", "0x4"), "must be at least 1; got '0x4'"),
        (
            ("scan_these:make", "--input", "8x5"),
            "Sequential cannot be scanned: calling it on the batch",
        ),
        (("scan_these:Words", "--input", "4x7<90"), "calling it on the batch raised IndexError: index out"),
        (
            ("scan_these:make", "--input", "no.npy"),
            "no file no.npy; --input must be a shape such as 8x3",
        ),
        (
            ("scan_these:make", "--input", "no.py:batch"),
            "no file no.py; --input must be a shape such as 8x3",
        ),
        (("scan_these:make", "--input", "scan_these:broken"), "RuntimeError: no batch today"),
        (("scan_these:make", "--input", "scan_these:nothing"), "scan_these has no 'nothing'"),
        (("scan_these:pair", "--input", "8x4"), "must be or make an nn.Module; got function"),
        (("nowhere:make", "--input", "8x4"), "importing nowhere failed"),
        (("scan_these:make", "--input", "8x4", "--json", "--latex"), "--json and --latex exclude each other"),
        (("scan_these:make", "--input", "8x4", "--dtype", "int8"), "--dtype must be among float64"),
        (("scan_these:make", "--input", "8x4", "--device", "abacus"), "--device must be one this torch can"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_bad_arguments_are_one_line_and_exit_code_2(normgeom, folder, arguments, message):
    code, out, err = normgeom("scan", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
