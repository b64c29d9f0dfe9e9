"""Laws of the ragged format: what goes in comes out, however it is cut, and every type holds its ids."""

import io
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.formats.ragged import (
    MAX_LENGTH,
    RaggedNames,
    RaggedSidecar,
    SourceRecord,
    SpecialToken,
    TokenizerRecord,
    check_ids,
    check_lengths,
    npy_header,
    parse_npy_header,
    parse_sidecar,
    ragged_names,
    token_dtype,
)
from dolma_dask.loaders.ragged import open_ragged
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.engine import TokenEngine, load_tokenizer
from dolma_dask.tokens.specials import Framing

NAMES = RaggedNames("wild.00000-of-00001")


@pytest.fixture(scope="module")
def engine() -> TokenEngine:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["the cat sat on the mat; ещё раз 世界"] * 3, trainer)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return load_tokenizer(tokenizer.to_str())


@given(
    texts=st.lists(st.text(max_size=30), max_size=10),
    cuts=st.sets(st.integers(1, 9)),
    specials=st.sampled_from([(None, None), (None, "</s>"), ("<s>", "</s>")]),
)
def test_any_split_gives_the_same_files_and_no_token_is_lost(
    engine: TokenEngine, texts: list[str], cuts: set[int], specials: tuple[str | None, str | None]
) -> None:
    framing = Framing.of(engine, *specials)
    column = pa.array(texts, pa.large_string())
    bounds = [0, *sorted(cut for cut in cuts if cut < len(texts)), len(texts)]
    batches = [column.slice(start, stop - start) for start, stop in pairwise(bounds)]
    with tempfile.TemporaryDirectory() as folder:
        for name, parts in (("whole", [column]), ("split", batches)):
            with RaggedWriter(f"{folder}/{name}", NAMES, framing.record(engine)) as writer:
                for part in parts:
                    writer.write(framing.apply(engine.encode(part)))
        for name in (NAMES.data, NAMES.lengths, NAMES.sidecar):
            assert Path(folder, "whole", name).read_bytes() == Path(folder, "split", name).read_bytes()
        read = [document.tolist() for document in open_ragged(f"{folder}/split")]
    tokenizer = Tokenizer.from_str(engine.read())
    begin, end = ([engine.token_id(name)] if name else [] for name in specials)
    assert read == [begin + tokenizer.encode(text, add_special_tokens=False).ids + end for text in texts]


@given(
    documents=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5), max_size=8),
    ceiling=st.sampled_from([0, 300, 32_767, 32_768, 65_535, 65_536, 2**32 - 1]),
)
def test_what_is_written_is_read(documents: list[list[int]], ceiling: int) -> None:
    documents = [[min(token, ceiling) for token in document] for document in documents]
    flat = np.array([token for document in documents for token in document], np.int64)
    with tempfile.TemporaryDirectory() as folder:
        with RaggedWriter(folder, NAMES, TokenizerRecord("f", None, ceiling + 1)) as writer:
            writer.write(Tokens(flat, np.array([len(item) for item in documents], np.int32)))
        dataset = open_ragged(folder)
        assert [document.tolist() for document in dataset] == documents
        assert (len(dataset), dataset.tokens, dataset.dtype) == (
            len(documents),
            flat.size,
            token_dtype(ceiling),
        )
        data = np.load(f"{folder}/{NAMES.data}")
        assert data.tolist() == flat.tolist()
        buffer = io.BytesIO()
        np.save(buffer, data)
        assert buffer.getvalue() == Path(folder, NAMES.data).read_bytes()


@given(
    dtype=st.sampled_from(["<i2", "<u2", "<u4", "<i4", "<i8", "|u1"]),
    count=st.integers(0, 10**6) | st.sampled_from([2**31, 10**15, 10**18]),
)
def test_header_is_that_of_numpy(dtype: str, count: int) -> None:
    expected = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(expected, fields)
    header = npy_header(np.dtype(dtype), count)
    assert header == expected.getvalue()
    assert len(header) == 128
    parsed = parse_npy_header(header + b"rest", "x")
    assert (parsed.dtype, parsed.count, parsed.offset) == (np.dtype(dtype), count, 128)
    assert parsed.file_bytes == 128 + count * np.dtype(dtype).itemsize


@given(
    head=st.binary(max_size=200)
    | st.binary(max_size=150).map(lambda rest: b"\x93NUMPY\x01\x00\x76\x00" + rest)
)
def test_any_bytes_are_a_header_or_a_clear_error(head: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"shard\.data\.npy"):
        parse_npy_header(head, "shard.data.npy")


def test_a_header_that_nests_deeply_is_a_clear_error() -> None:
    with pytest.raises(CorruptFileError, match=r"x: the npy header .* cannot be read: maximum recursion"):
        parse_npy_header(b"\x93NUMPY\x01\x00\x3d\x0f" + b"-" * 3900 + b"1", "x")


def test_version_2_headers_are_read() -> None:
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(file, {"descr": "<i2", "fortran_order": False, "shape": (7,)})
    parsed = parse_npy_header(file.getvalue(), "x")
    assert (parsed.count, parsed.offset) == (7, len(file.getvalue()))


@given(max_id=st.integers(0, 2**32 - 1) | st.sampled_from([32_767, 32_768, 65_535, 65_536]))
def test_a_type_holds_its_ids_and_none_is_smaller(max_id: int) -> None:
    dtype = token_dtype(max_id)
    assert np.array([max_id]).astype(dtype).tolist() == [max_id]
    assert dtype == np.dtype("<i2" if max_id < 2**15 else "<u2" if max_id < 2**16 else "<u4")


@pytest.mark.parametrize("max_id", [-1, 2**32])
def test_a_vocabulary_that_no_type_holds(max_id: int) -> None:
    with pytest.raises(UsageError, match="largest token id"):
        token_dtype(max_id)


@given(ids=st.lists(st.integers(-5, 20), max_size=8), max_id=st.integers(0, 20))
def test_ids_are_checked_like_a_loop_would(ids: list[int], max_id: int) -> None:
    wrong = [place for place, token in enumerate(ids) if not 0 <= token <= max_id]
    array = np.array(ids, np.int64)
    if wrong:
        with pytest.raises(DataError, match=rf"x: token {wrong[0]} of the batch has id {ids[wrong[0]]},"):
            check_ids(array, max_id, where="x")
    else:
        assert check_ids(array, max_id, where="x") == max(ids, default=None)


def test_lengths_are_refused_not_wrapped() -> None:
    assert check_lengths(np.array([0, MAX_LENGTH])).tolist() == [0, MAX_LENGTH]
    for wrong in (MAX_LENGTH + 1, -1):
        with pytest.raises(DataError, match=f"document 1 of the batch has {wrong} tokens"):
            check_lengths(np.array([0, wrong, wrong]))


@given(names=st.lists(st.from_regex(r"[a-z]{1,3}/[a-z]{1,3}\.json(l\.gz)?", fullmatch=True), max_size=6))
def test_names_are_unique_and_in_order(names: list[str]) -> None:
    made = ragged_names(names, "wiki")
    assert [item.numbered for item in made] == [("wiki", number, len(names)) for number in range(len(names))]
    assert [item.stem for item in made] == sorted({item.stem for item in made})


def test_numbered_sources_keep_their_names_unless_they_collide() -> None:
    c4 = ["en/c4-train.00007-of-01024.json.gz", "en/c4-validation.00000-of-00008.json.gz"]
    assert [item.data for item in ragged_names(c4, "c4")] == [
        "c4-train.00007-of-01024.data.npy",
        "c4-validation.00000-of-00008.data.npy",
    ]
    for sources in ([*c4, "fr/c4-train.00007-of-01024.json.gz"], [*c4, "en/other.jsonl.gz"]):
        assert [item.stem for item in ragged_names(sources, "c4")] == [
            f"c4.{n:05d}-of-00003" for n in range(3)
        ]


@pytest.mark.parametrize("dataset", ["", "a/b", ".hidden", "a\0"])
def test_a_dataset_name_must_be_a_file_name(dataset: str) -> None:
    with pytest.raises(UsageError, match="cannot begin a file name"):
        ragged_names(["x.jsonl"], dataset)


SPECIALS = st.none() | st.builds(SpecialToken, token=st.text(), id=st.integers(0, 2**31))


@given(
    sidecar=st.builds(
        RaggedSidecar,
        dtype=st.sampled_from(["<i2", "<u2"]),
        documents=st.integers(0, 2**40),
        tokens=st.integers(0, 2**50),
        max_id=st.none() | st.integers(0, 2**32 - 1),
        tokenizer=st.builds(
            TokenizerRecord,
            fingerprint=st.text(),
            file=st.none() | st.text(),
            vocab_size=st.integers(1, 2**32),
            bos=SPECIALS,
            eos=SPECIALS,
        ),
        source=st.none()
        | st.builds(SourceRecord, path=st.text(), digests=st.dictionaries(st.text(), st.text(), max_size=3)),
        checksums=st.fixed_dictionaries({"data": st.text(), "len": st.text()}),
        version=st.just(1),
    )
)
def test_sidecars_round_trip(sidecar: RaggedSidecar) -> None:
    content = sidecar.to_json()
    assert parse_sidecar(content, "x") == sidecar
    assert content.endswith(b"}\n")
    assert content == parse_sidecar(content, "x").to_json()
