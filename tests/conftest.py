"""Shapes and types in signatures are checked while tests run, where no torch.func transform hides axes."""

import sys

import jaxtyping

PARTS = (
    "norms",
    "transforms",
    "layers",
    "variants",
    "invariance",
    "points",
    "report",
    "figures",
    "cli",
    "training",
)
jaxtyping.install_import_hook([f"normgeom.{part}" for part in PARTS], "beartype.beartype")

import matplotlib  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

matplotlib.use("Agg")
torch.set_num_threads(1)  # the workers of pytest-xdist share the cores
settings.register_profile("normgeom", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("normgeom")


@pytest.fixture
def unchecked():
    """Leave the checks of the signatures out, so that normgeom's own errors are seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def point(generator):
    """A weight (5, 4) and data (6, 4) in float64."""
    return tuple(torch.randn(s, generator=generator, dtype=torch.float64) for s in ((5, 4), (6, 4)))


@pytest.fixture
def normgeom(monkeypatch, capsys):
    """Run the command line; return exit code, standard output and standard error."""

    def run(*arguments):
        from normgeom import cli

        monkeypatch.setattr(sys, "argv", ["normgeom", *arguments])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as exit:
            cli.main()
        out = capsys.readouterr()
        return exit.value.code, out.out, out.err

    return run
