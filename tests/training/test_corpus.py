import gzip
import hashlib

import pytest
import torch

from normgeom.training import NOVELS, Corpus
from normgeom.training import corpus as module


def test_the_novel_is_the_one_its_page_describes():
    corpus = Corpus.from_novel("persuasion")
    text = corpus.decode(corpus.training) + corpus.decode(corpus.held_out)
    page = (module.resources.files("normgeom") / "data" / "README.md").read_text()
    assert hashlib.sha256(text.encode()).hexdigest() == NOVELS["persuasion"]
    assert NOVELS["persuasion"] in page
    assert (len(text), corpus.vocabulary) == (466854, 75)
    assert f"{len(text):,}".replace(",", " ") in page
    assert set(text[: int(0.8 * len(text))]) == set(text)
    assert text.startswith("Persuasion\n\n\nby\n\nJane Austen")


def test_the_split_is_the_end_of_the_text():
    corpus = Corpus.from_string("abcab" * 4, held_out=0.25)
    assert corpus.decode(corpus.training) == "abcab" * 3
    assert corpus.decode(corpus.held_out) == "abcab"
    assert torch.equal(corpus.encode("cab"), torch.tensor([2, 0, 1]))


def test_a_given_vocabulary_is_kept():
    corpus = Corpus.from_string("aaaab", held_out=0.4, characters="zab")
    assert (corpus.characters, corpus.held_out.tolist()) == ("abz", [0, 1])


def test_files_and_folders(tmp_path):
    (tmp_path / "b.txt").write_text("bé\r\n" * 9, encoding="utf-8", newline="")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c.txt.gz").write_bytes(gzip.compress(("aé\r\nb" * 9).encode("utf-8-sig")))
    (tmp_path / "other.csv").write_text("1,2")
    one, both = (Corpus.from_text(path, held_out=0.3) for path in (tmp_path / "b.txt", tmp_path))
    assert one.characters == "\n\rbé"
    assert both.decode(torch.cat((both.training, both.held_out))) == "bé\r\n" * 9 + "\n" + "aé\r\nb" * 9


def test_the_digest_tells_corpora_apart():
    texts = [("abab", 0.5), ("abba", 0.5), ("ababab", 0.5), ("abcabc", 0.5)]
    assert len({Corpus.from_string(t, held_out=h).digest() for t, h in texts}) == 4


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "text must hold text; it is empty"),
        ("ab", {}, "at least 2 characters; got 2 to train on and 0 held out"),
        ("ab" * 9, {"held_out": 1.0}, "held_out must be a fraction between 0 and 1; got 1.0"),
        ("ab" * 9, {"held_out": float("nan")}, "held_out must be a fraction"),
        (
            "ab" * 9 + "ç",
            {"held_out": 0.2},
            r"must occur in the 15 characters to train on; 'ç' does not \(first at 18\). Give the vocabulary",
        ),
        ("ab" * 9, {"characters": "a"}, r"must be in the vocabulary; 'b' is not \(first at 1\)"),
        ("abcdefghijk" * 9, {"characters": "k"}, "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', … is not"),
    ],
)
def test_bad_texts(text, options, message):
    with pytest.raises(ValueError, match=message):
        Corpus.from_string(text, **options)


def test_a_character_of_the_end_alone_may_belong_to_the_vocabulary():
    corpus = Corpus.from_string("ab" * 9 + "ç", held_out=0.2, whole_vocabulary=True)
    assert (corpus.characters, corpus.decode(corpus.held_out)) == ("abç", "babç")
    assert Corpus.from_string("abab" * 5, whole_vocabulary=True).characters == "ab"


def test_bad_places(tmp_path):
    with pytest.raises(ValueError, match="novel must be among persuasion; got 'emma'"):
        Corpus.from_novel("emma")
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*nowhere.txt; a text is a novel"):
        Corpus.from_text(tmp_path / "nowhere.txt")
    with pytest.raises(FileNotFoundError, match=r"no .txt or .txt.gz file in folder"):
        Corpus.from_text(tmp_path)
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.txt must be text in UTF-8"):
        Corpus.from_text(tmp_path / "latin.txt")
    (tmp_path / "latin.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"latin.txt must hold text; it is empty"):
        Corpus.from_text(tmp_path / "latin.txt")
    (tmp_path / "torn.txt.gz").write_bytes(gzip.compress(b"abc" * 99)[:-9])
    with pytest.raises(ValueError, match=r"torn.txt.gz must be text"):
        Corpus.from_text(tmp_path / "torn.txt.gz")


def test_a_changed_novel_is_refused(monkeypatch):
    monkeypatch.setitem(NOVELS, "persuasion", "0" * 64)
    with pytest.raises(ValueError, match="the text of persuasion must be as it came"):
        Corpus.from_novel()


def test_characters_unknown_to_encode():
    with pytest.raises(ValueError, match=r"every character of text must be in the vocabulary; 'x' is not"):
        Corpus.from_string("abab", held_out=0.5).encode("abx")


@pytest.mark.parametrize("ids", [[-1], [2], torch.tensor([0, 1, 300])], ids=str)
def test_ids_out_of_range_are_no_text(ids):
    with pytest.raises(ValueError, match=rf"ids must be from 0 to 1; got {int(ids[-1])}"):
        Corpus.from_string("abab", held_out=0.5).decode(ids)


def test_what_is_no_row_of_ids_is_no_text():
    corpus = Corpus.from_string("abab", held_out=0.5)
    with pytest.raises(TypeError, match=r"ids must be integers; got torch\.float32"):
        corpus.decode(torch.tensor([0.5]))
    with pytest.raises(ValueError, match=r"ids must be along one axis; got shape \(1, 2\)"):
        corpus.decode(torch.tensor([[0, 1]]))
    assert corpus.decode([]) == ""
