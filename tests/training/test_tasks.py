import pytest
import torch

from normgeom.points import digit_images
from normgeom.training import Corpus, NextCharacter, SequentialDigits, Settings
from normgeom.training.tasks import IGNORED

CORPUS = Corpus.from_string("abcdefghijklmnopqrstuvwxyz" * 4, held_out=0.3)


def streams(task):
    """The text of each stream over one pass, and of its targets."""
    batches = [task.batch(k) for k in range(task.batches_per_pass)]
    return [
        [CORPUS.decode(column) for column in torch.cat([getattr(b, part) for b in batches]).T]
        for part in ("inputs", "targets")
    ]


def test_streams_are_the_text_in_order():
    task = NextCharacter(CORPUS, length=4, batch_size=3)
    text = CORPUS.decode(CORPUS.training)
    inputs, targets = streams(task)
    assert inputs == [text[0:24], text[24:48], text[48:72]]
    assert targets == [text[1:25], text[25:49], text[49:73]]


def test_a_pass_starts_afresh_and_repeats():
    task = NextCharacter(CORPUS, length=4, batch_size=3)
    assert [task.batch(k).fresh for k in range(8)] == [True, *[False] * 5, True, False]
    assert torch.equal(task.batch(7).inputs, task.batch(1).inputs)


@pytest.mark.parametrize("pieces", [1, 4, 7, 100])
def test_every_held_out_character_is_predicted_once(pieces):
    batches = list(NextCharacter(CORPUS, length=4, batch_size=3, pieces=pieces).held_out())
    rows = torch.cat([b.targets for b in batches]).T
    found = [int(k) for row in rows for k in row if k != IGNORED]
    assert found == CORPUS.held_out[1:].tolist()
    assert [b.fresh for b in batches] == [True] + [False] * (len(batches) - 1)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_shares_are_the_whole(processes):
    whole = NextCharacter(CORPUS, length=4, batch_size=6, pieces=5)
    shares = [whole.share(rank, processes) for rank in range(processes)]
    joined = torch.cat([s.batch(2).inputs for s in shares], dim=1)
    assert torch.equal(joined, whole.batch(2).inputs)
    kept = [b.targets[b.targets != IGNORED] for s in shares for b in s.held_out()]
    assert sorted(torch.cat(kept).tolist()) == sorted(CORPUS.held_out[1:].tolist())
    assert {str(s.identity()) for s in shares} == {str(whole.identity())}


def test_more_processes_than_pieces():
    shares = [NextCharacter(CORPUS, length=4, batch_size=4, pieces=1).share(k, 2) for k in range(2)]
    assert [len(list(s.held_out())) > 0 for s in shares] == [True, False]


def test_digits_are_read_row_by_row():
    images, labels = digit_images()
    batch = SequentialDigits(batch_size=1437, dtype=torch.float64).batch(0)
    read = batch.inputs.transpose(0, 1).reshape(-1, 64)[:9]
    order = [int((images[:1437] == image).all(1).nonzero()[0]) for image in read]
    assert torch.equal(labels[order], batch.targets[:9])
    assert torch.equal(batch.inputs[3, 0], images[order[0]][24:32])


def test_a_pass_takes_every_image_once_and_the_next_another_order():
    task = SequentialDigits(batch_size=479)
    passes = [torch.cat([task.batch(3 * k + j).targets for j in range(3)]) for k in range(2)]
    assert torch.equal(*(p.sort().values for p in passes))
    assert not torch.equal(*passes)
    assert torch.equal(task.batch(4).inputs, SequentialDigits(batch_size=479).batch(4).inputs)
    assert not torch.equal(task.batch(4).inputs, SequentialDigits(batch_size=479, seed=1).batch(4).inputs)


def test_the_last_fifth_of_the_digits_is_held_out():
    _, labels = digit_images()
    whole = SequentialDigits(batch_size=2)
    assert torch.equal(torch.cat([b.targets for b in whole.held_out()]), labels[1437:])
    shares = [torch.cat([b.targets for b in whole.share(k, 2).held_out()]) for k in range(2)]
    assert (torch.equal(shares[0], labels[1437::2]), torch.equal(shares[1], labels[1438::2])) == (True, True)
    assert torch.equal(
        torch.cat([whole.share(k, 2).batch(3).inputs for k in range(2)], 1), whole.batch(3).inputs
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NextCharacter(CORPUS, length=0, batch_size=3), "length must be at least 1; got 0"),
        (lambda: NextCharacter(CORPUS, length=4, batch_size=-3), "batch_size must be at least 1; got -3"),
        (lambda: NextCharacter(CORPUS, length=4, batch_size=3, pieces=0), "pieces must be at least 1; got 0"),
        (
            lambda: NextCharacter(CORPUS, length=24, batch_size=4),
            r"at least batch_size x length \+ 1 = 97 characters; it has 73. Take a smaller",
        ),
        (lambda: NextCharacter(CORPUS, length=4, batch_size=3).share(0, 2), "a multiple of the 2 processes"),
        (lambda: SequentialDigits(batch_size=0), "batch_size must be at least 1; got 0"),
        (lambda: SequentialDigits(batch_size=1438), "batch_size must be at most 1437"),
        (lambda: SequentialDigits(batch_size=3).share(0, 2), "a multiple of the 2 processes"),
        (lambda: SequentialDigits(batch_size=3, seed=-1), "seed must not be negative; got -1"),
    ],
)
def test_numbers_that_do_not_fit(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_longest_length_that_fits():
    assert NextCharacter(CORPUS, length=18, batch_size=4).batches_per_pass == 1


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_corpus_no_pixel_and_no_batch():
    corpus = Corpus.from_string("abcd" * 9)
    with pytest.raises(TypeError, match="corpus must be a Corpus; got str"):
        NextCharacter("abcd" * 9, length=2, batch_size=2)
    with pytest.raises(ValueError, match=r"length must be a whole number; got 1\.5"):
        NextCharacter(corpus, length=1.5, batch_size=2)
    with pytest.raises(TypeError, match=r"dtype must be of floating-point numbers; got torch\.int64"):
        SequentialDigits(batch_size=2, dtype=torch.int64)
    for task in (NextCharacter(corpus, length=2, batch_size=2), SequentialDigits(batch_size=2)):
        with pytest.raises(ValueError, match="batches are numbered from 0; got -1"):
            task.batch(-1)
    with pytest.raises(ValueError, match="task must be digits, persuasion or the path of a text; got ''"):
        Settings(task="")
