"""Text as integers: a vocabulary, a part to train on and a part that is held out."""

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

NOVELS = {"persuasion": "8061549557aebd2fd6e353d18d9197cb707029112bd52d4d8b174583a925848a"}
"""The novels that come with normgeom, with the SHA-256 of their text."""

SUFFIXES = (".txt", ".txt.gz")


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """A text split into a first part to train on and a last part that is held out, as ids of characters.

    The vocabulary is `characters`, in order of code point; `characters[i]` has the id i. It holds the
    characters of the training part alone, unless it is given: what the held-out part holds is not known
    before it is read.

    >>> corpus = Corpus.from_string("abcabcabca", held_out=0.2)
    >>> corpus
    Corpus('text', 8 characters to train on, 2 held out, vocabulary of 3)
    >>> corpus.training.tolist(), corpus.decode(corpus.held_out)
    ([0, 1, 2, 0, 1, 2, 0, 1], 'ca')
    """

    name: str
    characters: str
    training: Tensor
    held_out: Tensor

    @classmethod
    def from_string(
        cls,
        text: str,
        *,
        held_out: float = 0.1,
        characters: str | None = None,
        whole_vocabulary: bool = False,
        name: str = "text",
    ) -> "Corpus":
        """Split a text; the last `held_out` of it (a fraction) is held out.

        Args:
            text: the text, of at least 2 characters in each part.
            held_out: the fraction that is held out, between 0 and 1.
            characters: the vocabulary; if not given, that of the training part.
            whole_vocabulary: whether it is that of both parts instead: then what characters the held-out part
                holds is known before it is read, though not where.
            name: what errors and logs call the text.

        Raises:
            ValueError: if the text is empty or too short to split, the fraction is out of range, or a
                character is not in the vocabulary.
        """
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a string; got {type(text).__name__}.")
        if not 0 < held_out < 1:
            raise ValueError(f"held_out must be a fraction between 0 and 1; got {held_out}.")
        if not text:
            raise ValueError(f"{name} must hold text; it is empty.")
        cut = len(text) - round(held_out * len(text))
        if min(cut, len(text) - cut) < 2:
            raise ValueError(
                f"both parts of {name} must have at least 2 characters; got {cut} to train on and "
                f"{len(text) - cut} held out. Give more text or another held_out."
            )
        given = text if characters is None and whole_vocabulary else characters
        vocabulary = "".join(sorted(set(text[:cut] if given is None else given)))
        ids = {character: k for k, character in enumerate(vocabulary)}
        _refuse_unknown(text, cut, ids, name, given=given is not None)
        encoded = torch.tensor([ids[character] for character in text])
        return cls(name, vocabulary, encoded[:cut], encoded[cut:])

    @classmethod
    def from_text(
        cls,
        path: str | Path,
        *,
        held_out: float = 0.1,
        characters: str | None = None,
        whole_vocabulary: bool = False,
    ) -> "Corpus":
        """Read a text file, or all .txt and .txt.gz files in a folder and below it, in order of path.

        Files are UTF-8; those of a folder are joined by a line feed. For the arguments see `from_string`.

        Raises:
            FileNotFoundError: if there is no such file or folder, or no text file in the folder.
            ValueError: if a file is not UTF-8, and as `from_string`.
        """
        path = Path(path)
        text = "\n".join(_read(file) for file in _files(path))
        return cls.from_string(
            text,
            held_out=held_out,
            characters=characters,
            whole_vocabulary=whole_vocabulary,
            name=str(path),
        )

    @classmethod
    def from_novel(cls, name: str = "persuasion", *, held_out: float = 0.1) -> "Corpus":
        """Read a novel that comes with normgeom: persuasion (Jane Austen, 1818).

        Raises:
            ValueError: if the novel does not come with normgeom, or its text has been changed.

        >>> Corpus.from_novel("persuasion")
        Corpus('persuasion', 420169 characters to train on, 46685 held out, vocabulary of 75)
        """
        if name not in NOVELS:
            raise ValueError(f"novel must be among {', '.join(NOVELS)}; got {name!r}.")
        packed = resources.files("normgeom").joinpath("data", f"{name}.txt.gz").read_bytes()
        text = gzip.decompress(packed)
        if hashlib.sha256(text).hexdigest() != NOVELS[name]:
            raise ValueError(
                f"the text of {name} must be as it came; its SHA-256 differs. Reinstall normgeom."
            )
        return cls.from_string(text.decode(), held_out=held_out, name=name)

    @property
    def vocabulary(self) -> int:
        """The number of characters in the vocabulary."""
        return len(self.characters)

    def encode(self, text: str) -> Tensor:
        """Return the ids (characters,) of a text.

        Raises:
            ValueError: if a character is not in the vocabulary.
        """
        ids = {character: k for k, character in enumerate(self.characters)}
        _refuse_unknown(text, len(text), ids, "text", given=True)
        return torch.tensor([ids[character] for character in text], dtype=torch.int64)

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """Return the text of ids (characters,).

        Raises:
            TypeError: if the ids are no integers.
            ValueError: if they are not along one axis, or one is out of range.
        """
        ids = torch.as_tensor(ids) if len(ids) else torch.empty(0, dtype=torch.int64)
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise TypeError(f"ids must be integers; got {ids.dtype}.")
        if ids.ndim != 1:
            raise ValueError(
                f"ids must be along one axis; got shape {tuple(ids.shape)}. Decode one text a call."
            )
        listed: list[int] = ids.tolist()
        wrong = [k for k in listed if not 0 <= k < self.vocabulary]
        if wrong:
            raise ValueError(f"ids must be from 0 to {self.vocabulary - 1}; got {wrong[0]}.")
        return "".join(self.characters[k] for k in listed)

    def digest(self) -> str:
        """Return the SHA-256 of the vocabulary and both parts, which tells corpora apart."""
        parts = (self.characters.encode(), self.training.numpy().tobytes(), self.held_out.numpy().tobytes())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def __repr__(self) -> str:
        return (
            f"Corpus({self.name!r}, {len(self.training)} characters to train on, {len(self.held_out)} held "
            f"out, vocabulary of {self.vocabulary})"
        )


def _refuse_unknown(text: str, cut: int, known: dict[str, int], name: str, *, given: bool) -> None:
    """Raise an error that names the characters outside the vocabulary, and where the first of them stands."""
    unknown = sorted(set(text) - known.keys())
    if not unknown:
        return
    listed = ", ".join(map(repr, unknown[:8])) + (", …" if len(unknown) > 8 else "")
    first = min(text.index(character) for character in unknown)
    if given:
        raise ValueError(
            f"every character of {name} must be in the vocabulary; {listed} is not (first at {first})."
        )
    raise ValueError(
        f"every held-out character of {name} must occur in the {cut} characters to train on; {listed} does "
        f"not (first at {first}). Give the vocabulary as characters, take that of the whole text "
        f"(whole_vocabulary, --whole-vocabulary), or hold out another part (held_out, --held-out)."
    )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(
            f"no file or folder {path}; a text is a novel ({', '.join(NOVELS)}), a file or a folder."
        )
    found = sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file())
    if not found:
        raise FileNotFoundError(f"no {' or '.join(SUFFIXES)} file in folder {path}.")
    return found


def _read(file: Path) -> str:
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8-sig")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as why:
        raise ValueError(f"{file} must be text in UTF-8; it is not ({why}).") from why
