"""Samples: the hash of the library, a fraction, no row depends on another."""

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from dolma_dask.errors import UsageError
from dolma_dask.rules.sampling import check_fraction, hashes, sampled, xxh64

TEXTS = ["é" * (size % 3) + "x" * size for size in range(80)] + ["日本語" * 30, "\x00", ""]


def strings(values):
    return pa.array(values, pa.large_string())


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_the_kernel_is_xxh64(seed):
    for text in TEXTS:
        data = np.frombuffer(b"--" + text.encode() + b"--", np.uint8)
        assert (
            int(xxh64(data, 2, len(data) - 2, np.uint64(seed)))
            == xxhash.xxh64(text.encode(), seed).intdigest()
        )


def test_hashes_of_ids():
    ids = strings([*TEXTS, None])
    expected = [xxhash.xxh64(text.encode(), 7).intdigest() for text in [*TEXTS, ""]]
    assert hashes(ids, 7).tolist() == expected
    assert hashes(ids.slice(5), 7).tolist() == expected[5:]


def oracle(source, identity, fraction, seed):
    if identity is None:
        return False
    state = xxhash.xxh64((source or "").encode(), seed).intdigest()
    return xxhash.xxh64(identity.encode(), state).intdigest() < int(fraction * 2**64)


def test_a_row_is_chosen_by_its_source_and_id_alone():
    ids = [*TEXTS, None, "a", "a"]
    sources = ["s", "t", None, "ü"] * 21 + ["s", "t"]
    chosen = sampled(strings(sources), strings(ids), 0.4, 9).to_pylist()
    assert chosen == [oracle(source, identity, 0.4, 9) for source, identity in zip(sources, ids, strict=True)]
    part = sampled(strings(sources).slice(7, 20), strings(ids).slice(7, 20), 0.4, 9).to_pylist()
    assert part == chosen[7:27]


def test_a_sample_is_a_fraction_and_grows_with_it():
    ids, sources = strings([f"id-{number}" for number in range(20_000)]), strings(["web"] * 20_000)
    small, large = (sampled(sources, ids, fraction, 0) for fraction in (0.1, 0.3))
    assert 0.09 < small.true_count / 20_000 < 0.11
    assert 0.28 < large.true_count / 20_000 < 0.32
    assert not any(one and not other for one, other in zip(small.to_pylist(), large.to_pylist(), strict=True))
    assert sampled(sources, ids, 0.1, 1).to_pylist() != small.to_pylist()


def test_fractions():
    assert check_fraction(None) is None
    assert check_fraction(1) is None
    assert check_fraction(0.25) == 0.25
    for wrong in (0, -0.1, 1.01, float("nan"), True, "0.1"):
        with pytest.raises(UsageError, match="sample"):
            check_fraction(wrong)
