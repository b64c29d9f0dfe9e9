"""hdf5: no token lost, the same bytes for any shards, resuming, what is refused."""

import gzip
import json
import shutil
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples
from tokenizers import Tokenizer

import dolma_dask as dk
from dolma_dask.engine import documents as sinks
from dolma_dask.errors import BadRecordBudgetError, CorruptFileError, StageError, UsageError
from dolma_dask.io import files
from dolma_dask.outputs.hdf5 import rows as hdf5_rows
from dolma_dask.outputs.hdf5.raw import RawTexts, TextField
from dolma_dask.verbs.hdf5.verb import hdf5

from .conftest import TEXTS, document, write_lines

EOS = 0


def pack(dataset, to, tokenizer, **options):
    options = {"max_seq_length": 8, "progress": False, "scheduler": "synchronous"} | options
    return hdf5(
        dataset if isinstance(dataset, RawTexts) else str(dataset), str(to), tokenizer=tokenizer, **options
    )


def read_rows(folder) -> np.ndarray:
    arrays = []
    for path in sorted(Path(folder).glob("*.h5")):
        with h5py.File(path) as file:
            assert file.attrs["n_examples"] == len(file["data"]) > 0
            arrays.append(file["data"][:])
    return np.concatenate(arrays)


def read_params(folder) -> dict:
    return json.loads((Path(folder) / "data_params.json").read_text())


def tree(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and "_journal" not in path.parts
    }


def stream(tokenizer, texts) -> list[int]:
    encode = Tokenizer.from_file(tokenizer).encode
    return [token for text in texts for token in [*encode(text, add_special_tokens=False).ids, EOS]]


def unpacked(rows: np.ndarray) -> list[int]:
    """Return the stream behind packed rows: all inputs that are no padding, and the last label."""
    seen = rows[:, 1].astype(bool)
    return [*rows[:, 0][seen].tolist(), int(rows[:, 2][seen][-1])]


def store(root: Path, texts: list[str], shards: list[int]) -> Path:
    """Write texts as a dataset of shards of the given sizes; the last gets the rest."""
    lines = [json.dumps({"id": str(at), "text": text, "source": "s"}) for at, text in enumerate(texts)]
    for number, size in enumerate([*shards, len(lines)]):
        write_lines(root / f"documents/{number:03d}.jsonl", lines[:size])
        lines = lines[size:]
    return root


def test_no_token_is_lost(dataset, tmp_path, tokenizer):
    summary = pack(dataset, tmp_path / "out", tokenizer)
    expected = stream(tokenizer, [TEXTS[number % 6] for number in range(10)])
    rows = read_rows(tmp_path / "out")
    assert unpacked(rows) == expected
    assert summary.counts["tokens"] == len(expected)
    assert summary.counts["rows"] == len(rows) == -(-(len(expected) - 1) // 8)
    assert sorted(tree(tmp_path / "out")) == [
        "_segments/part-000000-00000.h5.parquet",
        "data_params.json",
        "part-000000-00000.h5",
    ]
    assert "files" in str(summary)


WORLDS = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@WORLDS
@given(
    texts=st.lists(
        st.one_of(st.sampled_from(TEXTS), st.text(st.characters(codec="utf-8"), max_size=20)), max_size=12
    ),
    shards=st.lists(st.integers(0, 4), max_size=5),
    length=st.integers(1, 12),
    most=st.integers(1, 9),
    packs=st.booleans(),
    short=st.sampled_from([0.0, 0.5]),
)
def test_shards_and_batches_do_not_matter(
    texts, shards, length, most, packs, short, tmp_path_factory, tokenizer
):
    """One shard or many, the same files byte for byte; packed and kept whole, the rows are the stream."""
    folder = tmp_path_factory.mktemp("world")
    options = {
        "max_seq_length": length,
        "max_rows_per_file": most,
        "pack_sequences": packs,
        "short_seq_prob": short if length > 2 else 0.0,
    }
    pack(store(folder / "one", texts, []), folder / "a", tokenizer, **options)
    old, hdf5_rows.BATCH_BYTES = hdf5_rows.BATCH_BYTES, 1
    try:
        pack(store(folder / "many", texts, shards), folder / "b", tokenizer, **options)
    finally:
        hdf5_rows.BATCH_BYTES = old
    a, b = tree(folder / "a"), tree(folder / "b")
    assert a.keys() == b.keys()
    assert all(a[name] == b[name] for name in a if "_segments" not in name)  # these name the shards
    expected = stream(tokenizer, texts)
    if packs and len(expected) > 1 and not options["short_seq_prob"]:
        rows = read_rows(folder / "a")
        assert unpacked(rows) == expected
        assert read_params(folder / "a")["post-process"]["n_examples"] == len(rows)
        assert max(len(h5py.File(path)["data"]) for path in (folder / "a").glob("*.h5")) <= most
    shutil.rmtree(folder)


def test_counts_are_those_of_the_rows(dataset, tmp_path, tokenizer):
    for packs in (True, False):
        out = tmp_path / f"out-{packs}"
        pack(dataset, out, tokenizer, pack_sequences=packs, max_rows_per_file=3, min_sequence_len=0)
        rows, params = read_rows(out), read_params(out)
        found, texts = params["post-process"], [TEXTS[number % 6] for number in range(10)]
        assert found["n_examples"] == len(rows)
        assert found["num_tokens"] == rows[:, 0].size
        assert found["loss_valid_tokens"] == rows[:, 1].sum()
        assert found["num_pad_tokens"] == found["num_masked_tokens"] == (rows[:, 1] == 0).sum()
        assert found["raw_chars_count"] == found["normalized_chars_count"] == sum(map(len, texts))
        assert found["raw_bytes_count"] == sum(len(text.encode()) for text in texts)
        assert found["processed_files"] == 10
        assert found["discarded_files"] == (0 if packs else 2), "an empty text is its end alone"
        assert (found["eos_id"], found["pad_id"]) == (0, 0)
        decoded = Tokenizer.from_file(tokenizer).decode_batch(rows[:, 0].tolist(), skip_special_tokens=False)
        stats = params["h5_dataset_stats"]
        assert stats["detokenized_bytes"] == sum(len(text.encode()) for text in decoded)
        assert stats["detokenized_chars"] == sum(map(len, decoded))
        seen = rows[:, 0][rows[:, 1] == 1]
        assert stats["non_pad_tokens"] == (seen != EOS).sum()
        assert params["features"] == ["input_ids", "attention_mask", "labels"]


def test_attributes_of_a_file_tell_where_it_is_from(dataset, tmp_path, tokenizer):
    pack(dataset, tmp_path / "out", tokenizer, max_rows_per_file=7)
    first = 0
    for path in sorted((tmp_path / "out").glob("*.h5")):
        with h5py.File(path) as file:
            assert file.attrs["first_row"] == first
            assert file.attrs["mode"] == "LMData"
            assert list(file.attrs["features"]) == ["input_ids", "attention_mask", "labels"]
            assert (file.attrs["eos_id"], file.attrs["max_seq_length"]) == (0, 8)
            first += len(file["data"])


def test_straight_from_a_selection_equals_by_way_of_a_mix(tagged, tmp_path, tokenizer):
    where = "char_length_v1__char_length_v1__length >= 10"
    v1 = dk.mix(str(tagged), to=str(tmp_path / "v1"), where=where, progress=False)
    pack(v1.target, tmp_path / "a", tokenizer)
    summary = pack(tagged, tmp_path / "b", tokenizer, where=where)
    assert (tmp_path / "a/part-000000-00000.h5").read_bytes() == (
        tmp_path / "b/part-000000-00000.h5"
    ).read_bytes()
    assert summary.counts["documents_out"] < summary.counts["documents_in"] == 10


def test_lost_files_need_their_own_shards_only(dataset, tmp_path, tokenizer):
    out = tmp_path / "out"
    pack(dataset, out, tokenizer, max_rows_per_file=4)
    before = tree(out)
    names = sorted(name for name in before if name.endswith(".h5"))
    (out / names[-1]).unlink()
    (out / "data_params.json").unlink()
    summary = pack(dataset, out, tokenizer, max_rows_per_file=4)
    assert (summary.done, summary.skipped) == (1, len(names) - 1)
    assert tree(out) == before
    (out / names[0]).write_bytes(b"torn")
    assert pack(dataset, out, tokenizer, max_rows_per_file=4).done == 1
    (out / "data_params.json").unlink()
    assert pack(dataset, out, tokenizer, max_rows_per_file=4).done == 0
    assert tree(out) == before


def test_old_and_new_files_side_by_side_are_not_said_to_be_all(dataset, tmp_path, tokenizer, monkeypatch):
    out = tmp_path / "out"
    pack(dataset, out, tokenizer, max_rows_per_file=4)
    write_lines(dataset / "documents/c.jsonl", [document(0)])
    real = hdf5_rows.RowsStage.run_shard

    def failing(stage, task):
        if task.shard == "part-000001-00000.h5":
            raise CorruptFileError("a disk is broken")
        return real(stage, task)

    monkeypatch.setattr(hdf5_rows.RowsStage, "run_shard", failing)
    with pytest.raises(StageError, match="a disk is broken"):
        pack(dataset, out, tokenizer, max_rows_per_file=4)
    assert not (out / "data_params.json").exists()


def test_a_changed_document_or_option_makes_all_rows_anew(dataset, tmp_path, tokenizer):
    out = tmp_path / "out"
    made = pack(dataset, out, tokenizer, max_rows_per_file=4).done
    write_lines(dataset / "documents/y/z/b.jsonl.gz", [document(number) for number in range(5, 9)])
    assert pack(dataset, out, tokenizer, max_rows_per_file=4).skipped == 0
    assert made > 2
    with pytest.raises(UsageError, match="finished hdf5 with other options: pad_id"):
        pack(dataset, out, tokenizer, max_rows_per_file=4, pad="a")
    with pytest.raises(UsageError, match="finished hdf5 with other options: max_rows_per_file 4, now 50000"):
        pack(dataset, out, tokenizer)
    pack(dataset, out, tokenizer, overwrite=True)
    pack(dataset, tmp_path / "other", tokenizer)
    assert tree(out) == tree(tmp_path / "other")


def test_tail(dataset, tmp_path, tokenizer):
    pack(dataset, tmp_path / "pad", tokenizer, max_seq_length=7)
    summary = pack(dataset, tmp_path / "drop", tokenizer, max_seq_length=7, tail="drop")
    whole, cut = read_rows(tmp_path / "pad"), read_rows(tmp_path / "drop")
    lost = len(stream(tokenizer, [TEXTS[number % 6] for number in range(10)])) - 1 - 7 * len(cut)
    assert np.array_equal(whole[: len(cut)], cut)
    assert (lost > 0) == (len(whole) == len(cut) + 1)
    assert f"{lost} token" in " ".join(summary.notes)


@pytest.mark.parametrize("tail", ["pad", "drop"])
def test_too_little_for_a_row(tmp_path, tokenizer, tail):
    summary = pack(store(tmp_path / "v0", [""], []), tmp_path / "out", tokenizer, tail=tail)
    assert "no row was written" in " ".join(summary.notes)
    assert sorted(tree(tmp_path / "out")) == ["data_params.json"]
    assert read_params(tmp_path / "out")["post-process"]["n_examples"] == 0
    assert pack(store(tmp_path / "v0", [""], []), tmp_path / "out", tokenizer, tail=tail).done == 0


def test_inverted_mask(dataset, tmp_path, tokenizer):
    pack(dataset, tmp_path / "a", tokenizer, max_seq_length=64)
    pack(dataset, tmp_path / "b", tokenizer, max_seq_length=64, inverted_mask=True)
    summary = pack(
        dataset, tmp_path / "c", tokenizer, max_seq_length=64, inverted_mask=True, compat="modelzoo-2.2"
    )
    rows, inverted = read_rows(tmp_path / "a"), read_rows(tmp_path / "b")
    assert np.array_equal(inverted[:, 1], 1 - rows[:, 1])
    assert np.array_equal(inverted[:, ::2], rows[:, ::2])
    assert read_params(tmp_path / "b")["post-process"] == read_params(tmp_path / "a")["post-process"]
    assert read_rows(tmp_path / "c")[0, 1, 0] == 1
    assert any("inverted_mask" in note for note in summary.notes)


def test_bad_records(dataset, tmp_path, tokenizer):
    write_lines(dataset / "documents/bad.jsonl", [document(1), "{", document(2)])
    with pytest.raises(StageError, match="on-bad-record"):
        pack(dataset, tmp_path / "out", tokenizer)
    with pytest.raises(BadRecordBudgetError, match=r"bad.jsonl, row 1, .*out/_quarantine/hdf5/"):
        pack(dataset, tmp_path / "out", tokenizer, on_bad_record="quarantine")
    options = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5}
    summary = pack(dataset, tmp_path / "out", tokenizer, **options)
    assert summary.counts["bad_records"] == 1
    assert (tmp_path / "out/_quarantine/hdf5/bad.jsonl.jsonl").exists()
    assert summary.counts["documents_in"] == 13
    assert pack(dataset, tmp_path / "out", tokenizer, **options).done == 0


def test_members_of_archives_that_are_skipped_are_counted_and_named(tmp_path, tokenizer):
    (tmp_path / "raw").mkdir()
    write_lines(tmp_path / "a.jsonl", [document(number) for number in range(9)])
    with tarfile.open(tmp_path / "raw/a.tar", "w") as tar:
        tar.add(tmp_path / "a.jsonl", "a.jsonl")
        link = tarfile.TarInfo("b.jsonl")
        link.type, link.linkname = tarfile.SYMTYPE, "a.jsonl"
        tar.addfile(link)
    for _ in range(2):  # also when all is done before
        summary = pack(RawTexts(str(tmp_path / "raw")), tmp_path / "out", tokenizer)
        assert (summary.counts["documents_in"], summary.counts["skipped_members"]) == (9, 1)
        assert "a.tar#b.jsonl (symlink)" in summary.notes[-1]


def test_files_of_others_are_refused(dataset, tmp_path, tokenizer):
    out = tmp_path / "out"
    out.mkdir()
    (out / "part-000000-00000.h5").write_bytes(b"theirs")
    with pytest.raises(UsageError, match="no hdf5 has made"):
        pack(dataset, out, tokenizer)
    assert tree(out) == {"part-000000-00000.h5": b"theirs"}
    pack(dataset, out, tokenizer, overwrite=True)
    (out / "more.h5").write_bytes(b"theirs")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=r"more\.h5"):
            pack(dataset, out, tokenizer, overwrite=overwrite)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "MLM"}, "is unknown"),
        ({"mode": "lmdata"}, "unknown"),
        ({"tail": "cut"}, "pad, drop"),
        ({"compat": "modelzoo-3"}, "modelzoo-2.2"),
        ({"max_seq_length": 0}, "max_seq_length"),
        ({"max_rows_per_file": 0}, "max_rows_per_file"),
        ({"min_sequence_len": -1}, "min_sequence_len"),
        ({"short_seq_prob": 2.0}, "short_seq_prob"),
        ({"seed": -1}, "seed"),
        ({"eos": "</s>"}, "</s>"),
        ({"chunk_len_to_split": 0, "split_text_to_tokenize": True}, "chunk_len_to_split"),
        ({"where": "x >"}, "x"),
        ({"max_length": 5}, "max_seq_length"),
    ],
)
def test_wrong_calls(dataset, tmp_path, tokenizer, options, message):
    with pytest.raises(UsageError, match=message):
        pack(dataset, tmp_path / "out", tokenizer, **options)
    assert not (tmp_path / "out").exists()


def write_raw(folder: Path) -> list[str]:
    """Write texts in every kind of file; return them in the order of paths."""
    folder.mkdir()
    lines = ['{"body": "one"}', '"a bare é string"', '{"body": ["two", "three"], "x": {}}', '{"body": 7}']
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "b.json.gz").write_bytes(gzip.compress(b'"four"\n{"body": "five"}\n'))
    (folder / "c").mkdir()
    (folder / "c/d.txt").write_text("six\n")
    (folder / "c/e.txt").write_text("seven")
    pq.write_table(pa.table({"n": [1], "body": ["eight"]}), folder / "f.parquet")
    zst = pa.Codec("zstd").compress(b'{"body": "nine"}\n', asbytes=True)
    (folder / "g.jsonl.zst").write_bytes(zst)
    (folder / "h.txt").write_text("ten")
    (folder / "z.pdf").write_bytes(b"%PDF")
    return [
        "one", "a bare é string", "two\n\nthree", "7", "four", "five", "six\n", "seven", "eight", "nine", "ten",
    ]  # fmt: skip


def test_raw_files(tmp_path, tokenizer):
    texts = write_raw(tmp_path / "raw")
    summary = pack(RawTexts(str(tmp_path / "raw"), key="body"), tmp_path / "out", tokenizer)
    assert unpacked(read_rows(tmp_path / "out")) == stream(tokenizer, texts)
    assert summary.counts["documents_in"] == 11
    assert "1 file of another kind left out: z.pdf" in summary.notes
    listed = tmp_path / "list.txt"
    listed.write_text(f"{tmp_path}/raw/h.txt\n\n{tmp_path}/raw/b.json.gz\n")
    pack(RawTexts(None, (str(listed),), "body"), tmp_path / "listed", tokenizer)
    assert unpacked(read_rows(tmp_path / "listed")) == stream(tokenizer, ["four", "five", "ten"])


OTHER_DATA = [
    "a.csv",
    "a.TSV.gz",
    "a.jsonl.bz2",
    "a.jsonl.xz",
    "a.arrow",
    "a.orc",
    "a.zip",
    "a.tar.gz",
    "a.gz",
]
NO_DATA = ["README.md", "a.pdf", "_SUCCESS", "a.md5", "LICENSE"]


@pytest.mark.parametrize("name", [*OTHER_DATA, "a.txt.xz"])
def test_data_of_other_kinds_is_not_left_out(name, tmp_path, tokenizer):
    write_lines(tmp_path / "raw/z.jsonl", ['{"text": "one"}'])
    (tmp_path / "raw" / name).write_bytes(b"")
    raw = RawTexts(str(tmp_path / "raw"))
    with pytest.raises(UsageError, match=f"1 file with data of a kind .*: {name};.* Convert the files"):
        pack(raw, tmp_path / "out", tokenizer)
    assert not (tmp_path / "out").exists()
    for options in ({"compat": "modelzoo-2.2"}, {"only": ["z.jsonl"]}):
        summary = pack(raw, tmp_path / "out", tokenizer, **options, overwrite=True)
        assert f"1 file of another kind left out: {name}" in summary.notes


def test_files_without_data_are_left_out_and_named(tmp_path, tokenizer):
    write_lines(tmp_path / "raw/z.jsonl", ['{"text": "one", "prompt": "one", "completion": "two"}'])
    for name in (*NO_DATA, "z.pdf"):
        (tmp_path / "raw" / name).write_bytes(b"")
    summary = pack(RawTexts(str(tmp_path / "raw")), tmp_path / "out", tokenizer)
    note = "6 files of another kind left out: LICENSE, README.md, _SUCCESS, a.md5, a.pdf and 1 more"
    assert note in summary.notes
    (tmp_path / "raw/about.txt.gz").write_bytes(b"")  # no records, which this mode reads
    pairs = {"mode": "Summarization", "prompt_key": "prompt", "completion_key": "completion"}
    assert pack(RawTexts(str(tmp_path / "raw")), tmp_path / "pairs", tokenizer, **pairs).exit_status == 0


def test_records_without_a_text(tmp_path, tokenizer):
    lines = [
        '{"text": "one"}',
        '{"body": "x"}',
        '{"text": null}',
        '{"text": ""}',
        '{"text": 0}',
        '""',
        '{"text": "0"}',
    ]
    write_lines(tmp_path / "raw/a.jsonl", lines)
    raw = RawTexts(str(tmp_path / "raw"))
    with pytest.raises(StageError, match="text in field 'text', which is missing"):
        pack(raw, tmp_path / "out", tokenizer)
    summary = pack(raw, tmp_path / "out", tokenizer, on_bad_record="quarantine", max_bad_fraction=0.5)
    assert summary.counts["bad_records"] == 2
    assert unpacked(read_rows(tmp_path / "out")) == stream(tokenizer, ["one", "", "0", "", "0"])
    summary = pack(raw, tmp_path / "like", tokenizer, compat="modelzoo-2.2")
    assert summary.counts["skipped_records"] == 5
    assert unpacked(read_rows(tmp_path / "like")) == stream(tokenizer, ["one", "0"])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.large_string(), pa.string_view()])
def test_texts_of_tables_whatever_their_type(tmp_path, tokenizer, kind):
    texts = ["one", "é" * 300, None, "two"]
    column = pa.array([text and text.encode() for text in texts], pa.binary())
    if not pa.types.is_large_binary(kind) and kind != pa.binary():
        column = column.cast(pa.string())
    (tmp_path / "raw").mkdir()
    pq.write_table(pa.table({"text": column.cast(kind)}), tmp_path / "raw/a.parquet")
    bad = {"on_bad_record": "quarantine", "max_bad_fraction": 1.0, "max_record_bytes": 500}
    summary = pack(RawTexts(str(tmp_path / "raw")), tmp_path / "out", tokenizer, **bad)
    assert unpacked(read_rows(tmp_path / "out")) == stream(tokenizer, ["one", "two"])
    assert summary.counts["bad_records"] == 2
    found = (tmp_path / "out/_quarantine/hdf5/a.parquet.jsonl").read_text().splitlines()
    assert [(json.loads(one)["row"], json.loads(one)["reason"]) for one in found] == [
        (1, "too_large"), (2, "wrong_type"),
    ]  # fmt: skip


def test_bytes_of_tables_that_are_no_text_are_bad_records(tmp_path, tokenizer):
    """Dialogues of bytes are texts as well, and were base64 once."""
    (tmp_path / "raw").mkdir()
    said = [
        [{"role": b"user", "content": one}, {"role": b"bot", "content": b"two"}] for one in (b"one", b"\xff")
    ]
    kind = pa.list_(pa.struct([("role", pa.binary()), ("content", pa.binary())]))
    columns = {"text": pa.array([b"one", b"\xff"]), "turns": pa.array(said, kind)}
    pq.write_table(pa.table(columns), tmp_path / "raw/a.parquet")
    pairs = {"mode": "Summarization", "multi_turn_key": "turns", "multi_turn_content_key": "content"}
    bad = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5}
    for name, options in {"texts": {}, "pairs": {**pairs, "min_sequence_len": 0}}.items():
        raw = RawTexts(str(tmp_path / "raw"))
        with pytest.raises(StageError, match=r"a\.parquet, row 1: invalid utf8; expected UTF-8 in all texts"):
            pack(raw, tmp_path / name, tokenizer, **options)
        assert pack(raw, tmp_path / name, tokenizer, **options, **bad).counts["bad_records"] == 1
    assert unpacked(read_rows(tmp_path / "texts")) == stream(tokenizer, ["one"])
    pair = [*stream(tokenizer, ["one"])[:-1], *stream(tokenizer, ["two"])]
    assert read_rows(tmp_path / "pairs")[0, 0, : len(pair)].tolist() == pair


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"text": 1.10}', "1.1"),
        (b'{"text": []}', ""),
        (b'{"text": ["a", 1]}', None),
        (b'{"text": 1e999}', None),
        (b'{"text": {}}', None),
        (b'{"text": true}', None),
        (b'"a", 1', None),
        (b"[1]", None),
        (b"7", None),
    ],
)
def test_what_is_a_text(line, expected):
    from dolma_dask.formats.json.exact import LineError

    field = TextField("text", False)
    if expected is None:
        with pytest.raises(LineError):
            field.convert_line(line)
    else:
        assert field.convert_line(line) == (expected,)


def test_raw_files_that_cannot_be_read(tmp_path, tokenizer):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.pdf").write_bytes(b"%PDF")
    with pytest.raises(UsageError, match="none of 1 file"):
        pack(RawTexts(str(tmp_path / "raw")), tmp_path / "out", tokenizer)
    with pytest.raises(UsageError, match="input_dir"):
        RawTexts()
    (tmp_path / "list.txt").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"list\.txt is not UTF-8"):
        pack(RawTexts(None, (str(tmp_path / "list.txt"),)), tmp_path / "out", tokenizer)
    pq.write_table(pa.table({"n": [1]}), tmp_path / "raw/b.parquet")
    with pytest.raises(StageError, match="no column 'text'"):
        pack(RawTexts(str(tmp_path / "raw")), tmp_path / "out", tokenizer)
    with pytest.raises(UsageError, match="raw files were given"):
        pack(RawTexts(str(tmp_path / "raw")), tmp_path / "out", tokenizer, where="x > 1")


def test_an_object_store_gets_the_same_bytes(root, dataset, tmp_path, tokenizer):
    """HDF5 seeks while it writes, which no store can: files go by way of scratch; staging files are read from the store."""
    pack(dataset, tmp_path / "expected", tokenizer, max_rows_per_file=4)
    url = files.join(root, "h5")
    for number, left in enumerate([None, "part-000001-00000.h5"]):
        if left is not None:
            files.remove(files.join(url, left))
        done = pack(dataset, url, tokenizer, max_rows_per_file=4).done
        assert (done == 1) == bool(number)
        found = {info.path for info in files.list_files(url) if not info.path.startswith("_journal/")}
        assert found == set(tree(tmp_path / "expected"))
        for name, content in tree(tmp_path / "expected").items():
            assert files.read_bytes(files.join(url, name)) == content


def test_rows_of_other_files_are_not_lost_in_silence(dataset, tmp_path, tokenizer):
    pack(dataset, tmp_path / "h5", tokenizer, only="x/")
    before = tree(tmp_path / "h5")
    with pytest.raises(
        UsageError, match=r"was made from 1 file that this run does not read, first .*/documents/x/a"
    ):
        pack(dataset, tmp_path / "h5", tokenizer, only="y/")
    assert tree(tmp_path / "h5") == before
    pack(dataset, tmp_path / "h5", tokenizer)
    with pytest.raises(UsageError, match="was made from 1 file"):
        pack(dataset, tmp_path / "h5", tokenizer, only="x/")
    pack(dataset, tmp_path / "h5", tokenizer, only="x/", overwrite=True)
    assert tree(tmp_path / "h5") == before


def test_a_share_beyond_the_last_shard_is_nothing_to_do(dataset, tmp_path, tokenizer):
    summary = pack(dataset, tmp_path / "h5", tokenizer, share="99/99")
    assert (summary.done, summary.exit_status) == (0, 0)
    assert not (tmp_path / "h5").exists()


def test_another_dataset_is_refused_before_anything_is_read(dataset, tmp_path, tokenizer, monkeypatch):
    pack(dataset, tmp_path / "h5", tokenizer)
    other = shutil.copytree(dataset, tmp_path / "other")
    before = tree(tmp_path)
    monkeypatch.setattr(sinks.DocumentStage, "run_shard", None)
    for path in (other / "documents").rglob("*.gz"):
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + document(77).encode() + b"\n"))
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="was made from"):
        pack(other, tmp_path / "h5", tokenizer)
    assert tree(tmp_path) == before


def test_compat_requires_an_ftfy_that_repairs_as_modelzoo_does(dataset, tmp_path, tokenizer, monkeypatch):
    """Another version is refused under compat; without it the rows are made again, and data_params.json tells the version."""
    pack(dataset, tmp_path / "like", tokenizer, compat="modelzoo-2.2")
    assert read_params(tmp_path / "like")["dataset"]["ftfy_version"].startswith("6.2.")
    pack(dataset, tmp_path / "repaired", tokenizer, use_ftfy=True)
    assert pack(dataset, tmp_path / "repaired", tokenizer, use_ftfy=True).done == 0
    newer = tmp_path / "ftfy-6.3.1.dist-info"
    newer.mkdir()
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: ftfy\nVersion: 6.3.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"version 6\.3\.1 is installed; expected one of 6\.1 or 6\.2"):
        pack(dataset, tmp_path / "other", tokenizer, compat="modelzoo-2.2")
    pack(dataset, tmp_path / "plain", tokenizer, compat="modelzoo-2.2", use_ftfy=False)
    assert "ftfy_version" not in read_params(tmp_path / "plain")["dataset"]
    summary = pack(dataset, tmp_path / "repaired", tokenizer, use_ftfy=True, overwrite=True)
    assert summary.done > 0
    assert read_params(tmp_path / "repaired")["dataset"]["ftfy_version"] == "6.3.1"
