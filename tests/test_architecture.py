"""The arrows of the imports, and what the library's core must not need."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "normgeom"

# What each part may import from normgeom; parts of the same line of the design do not see each other.
ALLOWED = {
    "_types": set(),
    "report": set(),
    "copies": set(),
    "norms": {"_types"},
    "_actions": {"_types"},
    "transforms": {"_actions"},
    "layers": {"_types", "norms", "copies"},
    "points": {"norms"},
    "processes": set(),
    "invariance": {"_types", "_actions", "norms", "transforms", "layers", "report"},
    "geometry": {"_types", "norms", "transforms", "processes"},
    "variants": {"_types", "norms", "layers"},
    "testing": {"", "_types", "norms", "transforms", "layers", "invariance"},
    "models": {"_types", "copies"},
    "training": {"models", "points", "processes", "report"},
    "optimizers": {"_types"},
    # A map draws itself, inside of a method: see `SymmetryMap.plot`.
    "symmetry": {"_types", "copies", "layers", "invariance", "geometry", "optimizers", "report", "figures"},
    "dynamics": {"_types", "copies", "invariance", "geometry", "optimizers", "symmetry", "report"},
    "loading_layers": {"loading"},
    "loading": {"geometry", "points"},
    "figures": {"report"},
    "cli": {
        "",
        "layers",
        "variants",
        "invariance",
        "geometry",
        "models",
        "training",
        "symmetry",
        "loading",
        "loading_layers",
        "points",
        "processes",
        "report",
    },
    "": {
        "norms",
        "transforms",
        "layers",
        "invariance",
        "geometry",
        "variants",
        "models",
        "training",
        "symmetry",
        "dynamics",
    },
}


def part(path):
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if name == "__init__" else name


def imported(path):
    """The parts of normgeom that a file imports; the package itself is ''."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [
                f"{node.module}.{alias.name}" if node.module == "normgeom" else node.module
                for alias in node.names
            ]
        for name in names:
            if name.split(".")[0] == "normgeom":
                yield [*name.split("."), ""][1]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down_only(path):
    assert set(imported(path)) - {part(path)} <= ALLOWED[part(path)]


def test_no_two_parts_import_each_other():
    order = list(graphlib.TopologicalSorter(ALLOWED).static_order())
    assert order.index("optimizers") < order.index("symmetry") < order.index("dynamics")


def test_the_core_needs_no_test_or_plotting_package():
    code = (
        "import sys, normgeom; print([m for m in ('pytest', 'hypothesis', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_small(path):
    assert len(path.read_text().splitlines()) <= 320
