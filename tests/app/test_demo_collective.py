"""The demo's all-reduce: its result, its rounds, and a peer that never arrives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.demo.collective import (
    CollectiveTimeoutError,
    Mesh,
    SharedMemoryMean,
    memory_bytes,
    shared_memory,
)


@contextmanager
def meshes(ranks: int) -> Iterator[list[Mesh]]:
    """A mesh of ``ranks`` places, all in this process."""
    pipes = [os.pipe() for _ in range(ranks)]
    peers = tuple(write for _, write in pipes)
    try:
        yield [Mesh(rank, read, peers) for rank, (read, _) in enumerate(pipes)]
    finally:
        for ends in pipes:
            for fd in ends:
                os.close(fd)


@contextmanager
def reducers(ranks: int, length: int, timeout_s: float = 30) -> Iterator[list[SharedMemoryMean]]:
    """One all-reduce per rank over one shared memory."""
    fd = shared_memory(memory_bytes(ranks, length))
    try:
        with meshes(ranks) as group:
            yield [SharedMemoryMean(mesh, fd, length, timeout_s) for mesh in group]
    finally:
        os.close(fd)


@settings(max_examples=15)
@given(
    ranks=st.integers(2, 5),
    length=st.integers(1, 33),
    rounds=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_all_reduce_is_the_mean_on_every_rank(
    ranks: int, length: int, rounds: int, seed: int
) -> None:
    vectors = np.random.default_rng(seed).standard_normal((rounds, ranks, length))
    vectors = vectors.astype(np.float32)
    with reducers(ranks, length) as group, ThreadPoolExecutor(ranks) as pool:

        def run(rank: int) -> list[np.ndarray]:
            return [group[rank].mean(vectors[r, rank]) for r in range(rounds)]

        results = list(pool.map(run, range(ranks)))
    for r in range(rounds):
        expected = vectors[r].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(results[0][r], expected, rtol=1e-5, atol=1e-6)
        for other in results[1:]:
            np.testing.assert_array_equal(other[r], results[0][r])


def test_nobody_leaves_a_round_before_the_last_has_come() -> None:
    left: list[int] = []
    with meshes(3) as group, ThreadPoolExecutor(3) as pool:

        def run(rank: int) -> None:
            group[rank].meet(30)
            left.append(rank)

        early = [pool.submit(run, rank) for rank in (0, 1)]
        # Both have announced themselves once their bytes lie in the third one's inbox.
        seen = b""
        while len(seen) < 2:
            seen += os.read(group[2]._inbox_fd, 2)
        assert sorted(seen) == [0, 1]
        assert left == []
        for sender in seen:
            group[2]._rounds_of[sender] += 1
        pool.submit(run, 2).result()
        for future in early:
            future.result()
    assert sorted(left) == [0, 1, 2]


def test_a_peer_that_never_arrives_is_named() -> None:
    with reducers(4, 2, timeout_s=0.2) as group, ThreadPoolExecutor(2) as pool:
        ones = np.ones(2, dtype=np.float32)
        futures = [pool.submit(group[rank].mean, ones) for rank in (0, 3)]
        for future in futures:
            with pytest.raises(CollectiveTimeoutError, match="ranks 1, 2 never arrived") as caught:
                future.result()
            assert caught.value.missing == (1, 2)


def test_shared_memory_has_no_name_and_its_size() -> None:
    fd = shared_memory(4096)
    try:
        assert os.fstat(fd).st_size == 4096
        assert os.fstat(fd).st_nlink == 0
    finally:
        os.close(fd)
