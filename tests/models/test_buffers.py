"""Memory that passes leave to each other."""

import pytest
import torch

import normgeom as ng
from normgeom.models.buffers import Buffers, Pool


def test_what_a_pass_took_serves_the_next_of_about_its_size():
    pool = Pool()
    first = Buffers(torch.empty(0, dtype=torch.float64), pool)
    place = first.take(4, 30).data_ptr()
    assert first.take(4, 30).data_ptr() != place
    del first
    places = {Buffers(torch.empty(0, dtype=torch.float64), pool).take(119).data_ptr() for _ in range(3)}
    assert len(places) == 1
    assert pool.bytes == 2 * 120 * 8


def test_pieces_of_one_memory_do_not_meet():
    pieces = Buffers(torch.empty(0), Pool()).take_all(a=(3, 5), b=(17,), c=(2, 2))
    assert [tuple(piece.shape) for piece in pieces.values()] == [(3, 5), (17,), (2, 2)]
    for number, piece in enumerate(pieces.values()):
        piece.fill_(number)
    assert [piece.unique().tolist() for piece in pieces.values()] == [[0], [1], [2]]
    assert all((piece.data_ptr() - pieces["a"].data_ptr()) % 64 == 0 for piece in pieces.values())


def test_other_devices_keep_their_memory_themselves():
    pool = Pool()
    buffers = Buffers(torch.empty(0, device="meta"), pool)
    assert {piece.device.type for piece in buffers.take_all(a=(3, 5), b=(2,)).values()} == {"meta"}
    del buffers
    assert pool.bytes == 0


def test_no_more_is_kept_than_allowed():
    pool = Pool(most_bytes=1000)
    for size in (64, 128, 256, 64):
        pool.give(torch.empty(size))
    assert pool.bytes <= 1000
    pool.give(torch.empty(1024))
    assert pool.bytes == 0


def test_types_are_not_mixed():
    pool = Pool()
    pool.give(torch.empty(64, dtype=torch.float64))
    assert pool.take(64, torch.float32).dtype == torch.float32


class _Interrupted(dict):
    """Runs `meanwhile` in the middle of a change, as another thread or the garbage collection may."""

    def pop(self, *key):
        found = super().pop(*key)
        if self.meanwhile:
            self.meanwhile.pop()()
        return found


def test_what_is_given_in_the_middle_of_giving_is_not_lost():
    pool, given = Pool(), [torch.empty(8) for _ in range(2)]
    pool._free = _Interrupted()
    pool._free.meanwhile = [lambda: pool.give(given[1])]
    pool.give(given[0])
    assert {id(pool.take(8, torch.float32)) for _ in given} == {id(flat) for flat in given}
    assert pool.bytes == 0


def test_what_is_given_while_the_pool_is_in_use_is_kept_for_later():
    pool, flat = Pool(), torch.empty(64)
    with pool._lock:
        pool.give(flat)
        assert pool.take(64, torch.float32) is not flat
    assert pool.take(64, torch.float32) is flat


@pytest.mark.parametrize("around", [torch.inference_mode(), torch.device("meta")], ids=["inference", "meta"])
@pytest.mark.parametrize("fused", ["0", "1"])
def test_a_pass_leaves_memory_that_any_other_can_use(around, fused, monkeypatch):
    monkeypatch.setenv("NORMGEOM_FUSED", fused)
    monkeypatch.setattr("normgeom.models.buffers.POOL", Pool())
    lstm, x = ng.LNLSTM(3, 4), torch.ones(5, 2, 3)
    with around:
        lstm(x)
    outputs, _ = lstm(x)
    outputs.sum().backward()
    assert lstm.layer0.weight_recurrent.grad.isfinite().all()
