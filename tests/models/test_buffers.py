"""Memory that passes leave to each other."""

import torch

from normgeom.models.fused.buffers import Buffers, Pool


def test_what_a_pass_took_serves_the_next_of_about_its_size():
    pool = Pool()
    first = Buffers(pool, torch.float64)
    place = first.take(4, 30).data_ptr()
    assert first.take(4, 30).data_ptr() != place
    del first
    places = {Buffers(pool, torch.float64).take(119).data_ptr() for _ in range(3)}
    assert len(places) == 1
    assert pool.bytes == 2 * 120 * 8


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
