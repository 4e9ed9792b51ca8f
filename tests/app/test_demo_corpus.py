"""The demo's text: real documents of really varying length, cut and packed without loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.demo.corpus import (
    ColdShard,
    Shard,
    documents,
    library_files,
    mean_tokens,
    pack,
)
from steptax.app.errors import InputError


def mean_length(shard: Shard, batches: int = 5) -> float:
    """Length of the sequence that a mean token is in: sum of squares over sum."""
    lengths = np.array([n for _ in range(batches) for n in shard.batch(4096).lengths])
    return float((lengths**2).sum() / lengths.sum())


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=6))
def test_pack_predicts_each_byte_from_the_ones_before_it(sequences: list[bytes]) -> None:
    batch = pack(sequences)
    assert batch.targets.astype(np.uint8).tobytes() == b"".join(sequences)
    assert batch.inputs.astype(np.uint8).tobytes() == b"".join(b"\0" + s[:-1] for s in sequences)
    assert batch.lengths == [len(s) for s in sequences]
    assert batch.tokens == sum(batch.lengths)


def test_documents_are_paragraphs_or_long_definitions() -> None:
    paragraph = b"def short():\n    return 1"
    definition = b"\n\n".join(b"    line %d of a long body" % i for i in range(60))
    text = b"x\n\n" + paragraph + b"\n\n\n" + definition + b"\n"
    assert documents(text, long=True) == [definition]
    short = documents(text, long=False)
    assert short[0] == paragraph
    assert len(short) == 61


def test_batches_have_the_tokens_asked_for_and_lose_none(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    body = [bytes([65 + i]) * (20 + 13 * i) for i in range(20)]
    path.write_bytes(b"\n\n".join(body))
    shard = Shard((path,), seed=3, context=100)
    batches = [shard.batch(333) for _ in range(9)]
    assert all(batch.tokens == 333 for batch in batches)
    assert max(n for batch in batches for n in batch.lengths) <= 100
    text = b"".join(batch.targets.astype(np.uint8).tobytes() for batch in batches)
    total = sum(len(part) for part in body)
    # Somewhere in less than two epochs lies one whole epoch: each document's bytes, in one run.
    assert len(text) < 2 * total
    counts = np.bincount(np.frombuffer(text[:total], dtype=np.uint8), minlength=128)
    assert [counts[65 + i] for i in range(20)] == [len(part) for part in body]


def test_same_seed_same_batches_and_another_seed_others() -> None:
    files = library_files()[:20]
    first, same, other = (Shard(files, seed=s, context=512).batch(2000) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.targets, same.targets)
    assert first.targets.tolist() != other.targets.tolist()


def test_library_lengths_vary_and_a_long_shard_is_longer() -> None:
    files = library_files()
    common = Shard(files, seed=0, context=1536)
    lengths = common.batch(20_000).lengths
    assert np.std(lengths) > 0.3 * np.mean(lengths)
    long = Shard(files, seed=0, context=1536, long=True)
    assert mean_length(long) > 3 * mean_length(common)


@pytest.mark.parametrize("long", [False, True])
def test_every_shard_of_the_most_workers_has_documents(long: bool) -> None:
    files = library_files()
    for rank in range(0, 64, 7):
        assert Shard(files[rank::64], seed=0, context=512, long=long).batch(100).tokens == 100


def test_cold_shard_opens_a_file_for_each_document() -> None:
    files = library_files()[:10]
    shard = ColdShard(files, seed=0, context=512, latency_s=0)
    tokens = round(20 * mean_tokens(files, 512))
    batch = shard.batch(tokens)
    assert batch.tokens == tokens
    assert 10 < len(batch.lengths) < 40


def test_a_shard_without_documents_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="without documents"):
        Shard((path,), seed=0, context=512)
