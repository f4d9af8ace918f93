import json

import numpy as np
import pytest
import torch

import normgeom as ng
from tests.geometry.networks import assert_near

MODELS = """
import torch
from torch import nn
import normgeom as ng


def make():
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2))
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(k)))
    return net


def glm():
    model = ng.NormalizedGLM(ng.LayerNorm(), ng.Categorical())
    return model, model.init(3, 4, generator=torch.Generator().manual_seed(0))


class Drop(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, 2), nn.Dropout())


net = make()
function = (lambda params, x: x @ params["w"].T, {"w": torch.ones(2, 3)})
bare = glm()[0]
empty = nn.Tanh()


def needs(width):
    return nn.Linear(3, width)


def fails():
    raise RuntimeError("no [luck] here\\nsecond line")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file of models and files of data, which is the current one."""
    (tmp_path / "some_models.py").write_text(MODELS)
    (tmp_path / "broken.py").write_text("import no_such_package")
    (tmp_path / "text.csv").write_text("1,2")
    (tmp_path / "broken.npy").write_text("1,2")
    x = np.random.default_rng(0).normal(size=(20, 3))
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", data=x, labels=np.arange(20))
    np.save(tmp_path / "nan.npy", x * np.nan)
    np.save(tmp_path / "wide.npy", np.ones((20, 7)))
    torch.save({"data": torch.from_numpy(x)}, tmp_path / "x.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def summary(normgeom, *arguments):
    code, out, err = normgeom("fisher", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_numbers_are_those_of_fisher(normgeom, folder):
    found = summary(normgeom, "some_models:make", "--family", "categorical", "--data", "x.npy",
                    "--dtype", "float64", "--top", "3", "--cases", "7")  # fmt: skip
    namespace = {}
    exec(MODELS, namespace)
    net, x = namespace["make"]().double(), torch.from_numpy(np.load("x.npy")[:7])
    F = ng.fisher(net, dict(net.named_parameters()), x, family=ng.Categorical())
    assert found["trace"] == pytest.approx(float(F.trace))
    assert_near(torch.tensor(found["top"]), F.eigenvalues().flip(0)[:3].float(), 1e-6)
    assert (found["rank"], found["nullity"]) == (F.rank, len(F.order) - F.rank)
    assert (found["cases"], found["parameters"], found["dtype"], found["route"]) == (
        7,
        34,
        "float64",
        "layers",
    )
    assert [b["name"] for b in found["blocks"]] == list(F.order.names)
    assert found["blocks"][0]["frobenius"] == pytest.approx(float(F["0.weight"].norm()))


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_mode_is_said(normgeom, folder, mode):
    arguments = ("some_models:make", "--family", "categorical", "--data", "x.npy", "--mode", mode)
    assert summary(normgeom, *arguments)["mode"] == mode
    assert f"Categorical(), {mode} mode\n" in normgeom("fisher", *arguments)[1]


def test_the_printed_page(normgeom, folder):
    code, out, err = normgeom("fisher", "some_models.py:glm", "--data", "x.npz", "--dtype", "float64")
    assert (code, err) == (0, "")
    assert "NormalizedGLM(LayerNorm), Categorical()" in out
    assert "20 cases, 20 parameters, float64 on cpu, route: closed form" in out
    for fact in (
        "weight",
        "4 x 3",
        "Frobenius",
        "trace ",
        "largest eigenvalues",
        "null space of dimension 5",
    ):
        assert fact in out


@pytest.mark.parametrize("data", ["x.npy", "x.npz", "x.pt"])
@pytest.mark.parametrize("name", ["make", "net"])
def test_every_kind_of_file_and_of_name(normgeom, folder, name, data):
    options = ("--family", "gaussian:2", "--data", data)
    found = summary(normgeom, f"some_models.py:{name}", *options)
    assert found["family"] == "Gaussian(dispersion=2.0)"
    assert found["trace"] == pytest.approx(summary(normgeom, "some_models:make", *options)["trace"])


def test_a_function_with_its_parameters(normgeom, folder):
    found = summary(normgeom, "some_models:function", "--family", "gaussian", "--data", "x.npy")
    x = np.load("x.npy")
    assert found["trace"] == pytest.approx(2 * (x**2).sum() / 20, rel=1e-5)


def test_digits_and_the_mode(normgeom, folder):
    (folder / "for_digits.py").write_text("from torch import nn\ndef make():\n    return nn.Linear(64, 10)")
    found = summary(normgeom, "for_digits:make", "--family", "categorical", "--data", "digits")
    assert (found["cases"], found["parameters"]) == (256, 650)
    options = ("some_models:Drop", "--family", "bernoulli", "--data", "x.npy")
    assert normgeom("fisher", *options)[0] == 2
    assert summary(normgeom, *options, "--mode", "eval")["parameters"] == 8


def test_a_large_model_is_not_written_out():
    net, x = torch.nn.Linear(60, 80), torch.eye(60)[:5]
    found = ng.fisher_summary(net, dict(net.named_parameters()), x, family=ng.Gaussian(), top=2)
    assert (found.parameters, found.rank, found.blocks[0].frobenius) == (4880, None, None)
    assert found.trace == pytest.approx(160)
    assert found.lines()[-1] == "rank not computed: F is written out up to 4096 parameters"
    # mean of [x; 1] [x; 1]^T over five unit vectors: 1 + 1/5 once, 1/5 four times, for every output.
    assert found.top == pytest.approx((1.2, 1.2))


GOOD = ("some_models:make", "--family", "categorical", "--data", "x.npy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("some_models", *GOOD[1:]), "MODULE:NAME or FILE.py:NAME; got 'some_models'"),
        (("nowhere:make", *GOOD[1:]), "importing nowhere failed: ModuleNotFoundError: No module named"),
        (("nowhere.py:make", *GOOD[1:]), "no file nowhere.py"),
        (
            ("broken:make", *GOOD[1:]),
            "importing broken failed: ModuleNotFoundError: No module named 'no_such",
        ),
        (
            ("some_models:mak", *GOOD[1:]),
            "some_models has no 'mak'; it defines make, glm, Drop, needs, fails",
        ),
        (("some_models:needs", *GOOD[1:]), "some_models:needs must take no arguments, but needs width"),
        (
            ("some_models:fails", *GOOD[1:]),
            "calling some_models:fails() failed: RuntimeError: no [luck] here",
        ),
        (("some_models:bare", *GOOD[1:]), "got NormalizedGLM. A NormalizedGLM needs its parameters"),
        (("some_models:empty", *GOOD[1:]), "is a Tanh without parameters"),
        (("some_models:torch", *GOOD[1:]), "return one; got module"),
        ((*GOOD[:1], *GOOD[3:]), "--family must be given for this model, for example --family categorical"),
        ((*GOOD, "--family", "cauchy"), "--family must be one of gaussian:dispersion, bernoulli"),
        ((*GOOD, "--family", "binomial"), "binomial:trials"),
        ((*GOOD, "--family", "poisson:3"), "got 'poisson:3'"),
        ((*GOOD, "--family", "gaussian:wide"), "the dispersion of gaussian must be a number; got 'wide'"),
        ((*GOOD, "--family", "gaussian:-1"), "dispersion must be a finite number > 0; got -1"),
        ((*GOOD, "--data", "no.npy"), "no file no.npy; data must be digits, or an .npy, .npz or .pt file"),
        ((*GOOD, "--data", "text.csv"), "data must be digits, or an .npy, .npz or .pt file; got text.csv"),
        ((*GOOD, "--data", "broken.npy"), "broken.npy cannot be read"),
        ((*GOOD, "--data", "nan.npy"), "data must not hold NaN; got 60 of 60 values"),
        (
            (*GOOD, "--data", "wide.npy"),
            "cannot be called on data (20, 7) float32: RuntimeError: mat1 and mat2",
        ),
        ((*GOOD, "--cases", "0"), "--cases must be at least 1; got 0"),
        ((*GOOD, "--top", "0"), "top must be at least 1 eigenvalue; got 0"),
        ((*GOOD, "--dtype", "int8"), "--dtype must be among float64, float32"),
        ((*GOOD, "--device", "abacus"), "--device must be one this torch can use; got 'abacus'"),
        (("some_models:Drop", *GOOD[1:]), "dropout is active"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_bad_arguments_are_one_line_and_exit_code_2(normgeom, folder, arguments, message):
    code, out, err = normgeom("fisher", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
