import json

import matplotlib.pyplot as plt
import pytest

import normgeom as ng
from analyses import symmetry_atlas
from tests.analyses.training_runs import files_of
from tests.golden.scan_models import REFERENCES, reference

pytestmark = pytest.mark.filterwarnings("ignore")


def test_files_are_written_and_the_figure_is_drawn_from_them(tmp_path):
    files = files_of("symmetry_atlas", tmp_path)
    kinds = (".json", ".md", ".pdf", ".png", "_map.pdf", "_map.png")
    assert set(files) == {f"symmetry_atlas{kind}" for kind in kinds}
    assert b"/Type3" not in (tmp_path / "symmetry_atlas_map.pdf").read_bytes()
    saved = json.loads((tmp_path / "symmetry_atlas.json").read_text())
    figure = symmetry_atlas.draw(saved["rows"])
    assert len(figure.axes) == 1
    plt.close(figure)
    text = (tmp_path / "symmetry_atlas.md").read_text()
    assert all(f"\n## {name}\n" in text for name in saved["maps"])


@pytest.mark.parametrize("name", REFERENCES)
def test_the_kinds_add_up_to_the_nullity(name):
    rows = symmetry_atlas.counts(name, ng.scan(*reference(name)))
    assert sum(r["count"] for r in rows if r["symmetry"] not in symmetry_atlas.SHIFTS) == rows[0]["nullity"]
    assert rows[0]["nullity"] == REFERENCES[name].nullity


def test_the_table_has_what_was_counted():
    rows = symmetry_atlas.counts("pre-LN", ng.scan(*reference("pre-LN")))
    header, (cells,) = symmetry_atlas.table(rows)
    row = dict(zip(header, cells, strict=True))
    assert (row["architecture"], row["nullity"], row["dead"], row["Q/K pair"]) == ("pre-LN", "12", "2", "2")
    assert "matrices free alone" not in header


def test_kinds_are_ordered_by_how_many_architectures_have_them_and_then_as_they_come():
    rows = [
        {"model": model, "symmetry": kind, "count": count}
        for model, kind, count in [
            ("a", "y", 1),
            ("a", "x", 3),
            ("a", "dead", 1),
            ("b", "x", 1),
            ("b", "z", 1),
        ]
    ]
    assert symmetry_atlas.names(rows) == (["a", "b"], ["dead", "x", "y", "z"])
