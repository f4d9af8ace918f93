"""Memory that passes leave to each other."""

import torch

from normgeom.models.fused.buffers import Buffers, Pool


def test_what_a_pass_took_serves_the_next_of_about_its_size():
    pool = Pool()
    first = Buffers(pool, torch.float64)
    place = first.take(a=(4, 30))["a"].data_ptr()
    assert first.take(a=(4, 30))["a"].data_ptr() != place
    del first
    places = {Buffers(pool, torch.float64).take(a=(119,))["a"].data_ptr() for _ in range(3)}
    assert len(places) == 1
    assert pool.bytes == 2 * 128 * 8


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
