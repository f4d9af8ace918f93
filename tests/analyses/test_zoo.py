import dataclasses
import itertools
import json

import pytest

from analyses import __main__ as main
from analyses import _run, _zoo_text, zoo
from normgeom.variants import VARIANTS, Claim, variant

SOME = tuple(
    variant(n)
    for n in ("layer norm", "DyT", "batch renorm", "weight norm, conv", "local response norm, k = 0")
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    options = _run.Options(tmp_path_factory.mktemp("zoo"), quick=True)
    return {v.name: zoo.record(v, options) for v in SOME}


def test_it_writes_its_files_and_the_manifest(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "VARIANTS", SOME)
    assert main.main(["zoo", "--quick", "--out", str(tmp_path)]) == 0
    assert set(json.loads((tmp_path / "manifest.json").read_text())) == {
        f"zoo.{kind}" for kind in ("json", "md", "tex", "pdf", "png")
    }
    assert all(ord(c) < 128 for c in (tmp_path / "zoo.tex").read_text()), "LaTeX would need more packages"
    assert b"/Type3" not in (tmp_path / "zoo.pdf").read_bytes()
    assert len(json.loads((tmp_path / "zoo.json").read_text())) == len(SOME)


def test_every_layer_of_the_zoo_is_in_it():
    assert zoo.VARIANTS is VARIANTS


def test_powers_are_one_formula_in_latex(rows):
    text = _zoo_text.latex(list(rows.values()))
    assert r"$\mbox{No, }\propto\delta^{-1/2}$" in text
    assert r"\^{}" not in text


def test_the_picture_s_words_do_not_overlap(rows):
    """Beside the longest name of the zoo, headings and key stay inside and apart."""
    longest = max((v.name for v in VARIANTS), key=len)
    figure = zoo.draw([row | {"layer": longest} for row in rows.values()])
    canvas = figure.canvas
    canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels() if label.get_text()]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
    key = figure.legends[0].get_window_extent()
    assert key.x0 >= 0
    assert key.x1 <= figure.bbox.x1


def test_cells_read_as_the_paper_s(rows):
    labels = [_zoo_text.label(cell) for cell in rows["layer norm"]["cells"]]
    assert labels == ["up to eps", "Invariant", "No", "up to eps", "No", "up to eps"]
    labels = [_zoo_text.label(cell) for cell in rows["weight norm, conv"]["cells"]]
    assert labels == ["Invariant", "No", "Invariant", "No, ∝δ", "No", "No, ∝δ"]
    assert _zoo_text.label(rows["local response norm, k = 0"]["cells"][0]) == "No, ∝δ^-1/2"


def test_what_a_yes_or_no_hides(rows):
    assert rows["DyT"]["joint"][0]["error"] < 1e-12
    told = _zoo_text.gradient(rows["batch renorm"])
    assert told.startswith("hold, not invariant: weight matrix re-scaling, weight vector re-scaling")
    assert _zoo_text.gradient(rows["layer norm"]) == "–"
    assert rows["layer norm"]["eps_law_error"] < 1e-12


def test_every_no_has_a_witness(rows):
    cells = [cell for row in rows.values() for cell in row["cells"]]
    assert all(bool(cell["witness"]) == (cell["kind"] == "not invariant") for cell in cells)


def test_in_full_all_engines_must_agree_on_a_cell(tmp_path):
    row = zoo.record(variant("layer norm"), _run.Options(tmp_path))
    assert row["unmet"] == []
    assert all({"numeric", "exact", "symbolic", "graph"} <= set(cell["engines"]) for cell in row["cells"])


def test_a_cell_that_one_engine_alone_decides_is_named(tmp_path):
    alone = list(zoo.verdicts(variant("DyT"), _run.Options(tmp_path, quick=True)))
    assert zoo._seen_once(alone)[0] == "WeightMatrixRescale: decided by 1 engine alone"


@pytest.mark.parametrize(
    ("column", "claim", "said"),
    [
        (
            "dataset_recenter",
            Claim("invariant"),
            "layer norm: DatasetRecenter: claimed invariant, found not invariant",
        ),
        (
            "weight_vector_rescale",
            Claim("not invariant", 1),
            "layer norm: WeightVectorRescale: claimed degree 1, meas",
        ),
    ],
)
def test_a_claim_that_does_not_hold_stops_it(tmp_path, monkeypatch, column, claim, said):
    v = variant("layer norm")
    wrong = dataclasses.replace(v, claims=dataclasses.replace(v.claims, **{column: claim}))
    monkeypatch.setattr(zoo, "VARIANTS", (wrong,))
    with pytest.raises(RuntimeError, match=f"claims of the zoo are not met:\n{said}"):
        zoo.write(_run.Options(tmp_path, quick=True))
