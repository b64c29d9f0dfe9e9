"""remove: nothing below the root holds what was taken down, all else is as it was, and everything that reads or makes it goes on."""

import bz2
import csv
import gzip
import json
import lzma
import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.engine import lease
from dolma_dask.errors import DolmaDaskError, UsageError
from dolma_dask.io import publish
from dolma_dask.journal import Journal
from dolma_dask.reading.segments import read_segments
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.verbs.remove import changes as announced

HERE: dict[str, Any] = {"progress": False, "scheduler": "synchronous"}
QUARANTINE = {"on_bad_record": "quarantine", "max_bad_fraction": 0.9}
RULE = "char_length_v1__char_length_v1__length >= 40"
FORMATS = ("numpy", "parquet", "dolma", "megatron", "datatrove", "mds")
GONE = ("a-3", "é-4", "c-11", "p-5", "a-60")
"""Taken down: by id alone, or with their source."""

COMMON = "the quick harbour of winter people and water"
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()  # noqa: SIM905


def document(identity: str, number: int) -> dict[str, Any]:
    words = " ".join(WORDS[(number * step) % 10] for step in range(1, 12 + number % 7))
    return {
        "id": identity,
        "text": f"secret{number:03d}{identity[0]} {COMMON} {words}" if number % 6 else "short",
        "source": ("web", "wïki")[number % 2],
        "metadata": {"n": number},
    }


def marker(identity: str) -> str:
    return f"secret{int(identity.split('-')[1]):03d}{identity[0]}"


def write(path: Path, documents: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(documents), path, row_group_size=4)
        return
    lines = [json.dumps(one, ensure_ascii=False) if isinstance(one, dict) else one for one in documents]
    data = "".join(f"{line}\n" for line in lines).encode()
    pack = {
        ".gz": lambda text: gzip.compress(text, mtime=0),
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": lambda text: pa.Codec("zstd").compress(text, asbytes=True),
    }
    path.write_bytes(pack.get(path.suffix, bytes)(data))


def make_documents(root: Path) -> None:
    write(root / "documents/a.jsonl.gz", [document(f"a-{n}", n) for n in range(70)])
    write(root / "documents/sub/é.jsonl.zst", [document(f"é-{n}", n) for n in range(9)])
    write(root / "documents/c.jsonl", [document(f"c-{n}", n) for n in range(20)])
    write(root / "documents/p.parquet", [document(f"p-{n}", n) for n in range(13)])
    write(root / "documents/old.jsonl.bz2", [document(f"b-{n}", n) for n in range(7)])


def text_of(path: Path) -> bytes:
    """Return all that a file holds, decompressed, tables as text."""
    data = path.read_bytes()
    if path.suffix == ".parquet":
        return repr(pq.read_table(path).to_pylist()).encode() + repr(pq.read_metadata(path).metadata).encode()
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
    if path.suffix == ".zst":
        return bytes(pa.CompressedInputStream(pa.py_buffer(data), "zstd").read())
    return unpack.get(path.suffix, bytes)(data)


def holding(root: Path, *words: str) -> list[str]:
    """Return the files below a root that hold one of some words, but for tombstones."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and "_tombstones" not in path.parts)
    return [
        str(path.relative_to(root)) for path in found if any(word.encode() in text_of(path) for word in words)
    ]


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def run(*words: object, status: int = 0) -> None:
    assert cli.main([*map(str, words), "--no-progress", "--scheduler", "synchronous"]) == status, words


def make_all(root: Path, tokenizer: Path) -> None:
    """Make a version, token files and all else of the dataset `v0` below a root."""
    v0 = str(root / "v0")
    dk.tag(v0, ["char_length_v1", "gopher_v2"], **HERE)
    dk.tag(v0, ["whitespace_tokenizer_v1"], experiment="table", format="parquet", **HERE)
    dk.dedupe(v0, **HERE)
    dk.dedupe(v0, how="fuzzy", **HERE)
    dk.quantiles(v0, signals=["word_count"], level="regular", **HERE)
    dk.filter(v0, thresholds=str(root / "v0/quantiles/quantiles.regular.json"), **HERE)
    dropped = str(root / "dropped")
    dk.mix(v0, to=str(root / "sub/v1"), where=RULE, dropped=dropped, dropped_documents=True, **HERE)
    dk.mix(v0, to=str(root / "packed"), where=RULE, max_size=3000, shuffle=True, seed=3, **HERE)
    for name in FORMATS:
        to = str(root / f"tokens/{name}")
        dk.ragged(v0, to, tokenizer=str(tokenizer), format=name, eos="<|endoftext|>", where=RULE, **HERE)

    for verb, to, options in more(tokenizer):
        getattr(dk, verb)(v0, str(root / to), **options, **HERE)


def more(tokenizer: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Return calls that make token files of documents from several shards, and rows."""
    given = {"tokenizer": str(tokenizer), "eos": "<|endoftext|>", "where": RULE}
    shuffled = {"format": "dolma", "shuffle": True, "seed": 5, "max_size": 4000}
    rows = {"mode": "LMData_VSL", "max_seq_length": 64, "max_rows_per_file": 8, "min_sequence_len": 2}
    return [
        ("ragged", "tokens/shuffled", given | shuffled),
        ("hdf5", "tokens/rows", given | rows | {"shuffle": True}),
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a root in which everything was made, an untouched copy of its source, and a list."""
    folder = tmp_path_factory.mktemp("takedown")
    train_tokenizer([COMMON, *WORDS], folder / "tokenizer.json", 300)
    assert True
    make_documents(folder / "root/v0")
    shutil.copytree(folder / "root/v0", folder / "source")
    make_all(folder / "root", folder / "tokenizer.json")
    (folder / "ids.txt").write_text("a-3\nweb\té-4\nwïki\tc-11\nwïki\tp-5\nweb\ta-60\nweb\ta-5\nnobody\n")
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder, with its time stamps."""
    return Path(shutil.copytree(made, tmp_path / "w"))


@pytest.fixture(scope="module")
def done(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return a copy in which the takedown was done, and its outcome."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("done") / "w"))
    return folder, removed(folder)


def removed(folder: Path, **options: Any) -> Any:
    return dk.remove(str(folder / "root"), ids=str(folder / "ids.txt"), **options, **HERE)


def is_made(root: Path, tokenizer: Path) -> list[Any]:
    """Run everything again, and return the outcomes."""
    v0 = str(root / "v0")
    return [
        dk.tag(v0, ["char_length_v1", "gopher_v2"], **HERE),
        dk.tag(v0, ["whitespace_tokenizer_v1"], experiment="table", format="parquet", **HERE),
        dk.dedupe(v0, **HERE),
        dk.dedupe(v0, how="fuzzy", **HERE),
        dk.filter(v0, thresholds=str(root / "v0/quantiles/quantiles.regular.json"), **HERE),
        dk.mix(
            v0,
            to=str(root / "sub/v1"),
            where=RULE,
            dropped=str(root / "dropped"),
            dropped_documents=True,
            **HERE,
        ),
        dk.mix(v0, to=str(root / "packed"), where=RULE, max_size=3000, shuffle=True, seed=3, **HERE),
        *(
            dk.ragged(
                v0,
                str(root / f"tokens/{name}"),
                tokenizer=str(tokenizer),
                format=name,
                eos="<|endoftext|>",
                where=RULE,
                **HERE,
            )
            for name in FORMATS
        ),
        *(getattr(dk, verb)(v0, str(root / to), **options, **HERE) for verb, to, options in more(tokenizer)),
    ]


# what is gone, and what stays


def test_nothing_below_the_root_holds_it(done):
    folder, outcome = done
    words = [marker(identity) for identity in GONE]
    assert holding(folder / "source", *words)
    assert holding(folder / "root", *words, *(f'"{identity}"' for identity in GONE)) == []
    assert holding(folder / "root", *(f"'{identity}'" for identity in GONE)) == []
    assert outcome.exit_status == 0
    assert not outcome.left
    assert outcome.unmatched == ("web\ta-5", "nobody")


def runs_of(made: Path) -> list[np.ndarray]:
    """Return the tokens that documents begin with which are taken down: a word that is theirs alone, and some more."""
    runs = []
    for path in sorted((made / "root/tokens/numpy").glob("*.data.npy")):
        lengths = np.load(str(path).replace(".data.", ".len."))
        ids = read_segments(str(path.parent), path.name)["id"].to_pylist()
        each = zip(ids, np.split(np.load(path), np.cumsum(lengths)[:-1]), strict=True)
        runs += [tokens[:12].astype(np.int64) for identity, tokens in each if identity in GONE]
    return runs


def tokens_in(path: Path) -> np.ndarray:
    """Return all ids of a token file."""
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return file["data"][:].astype(np.int64).ravel()
    if path.suffix == ".parquet":
        return pq.read_table(path)["input_ids"].combine_chunks().flatten().to_numpy().astype(np.int64)
    data = path.read_bytes()
    if path.suffix == ".mds":
        return np.frombuffer(data[len(data) % 4 :], "<i4").astype(np.int64)
    return np.frombuffer(data[len(data) % 2 :], "<u2").astype(np.int64)


def holds(path: Path, run: np.ndarray) -> bool:
    if path.suffix == ".mds":  # tokens begin at any byte
        return run.astype("<i4").tobytes() in path.read_bytes()
    return run.tobytes() in tokens_in(path).tobytes()


def test_no_token_file_holds_a_run_of_its_tokens(made, done):
    folder, _ = done
    runs, suffixes = runs_of(made), (".npy", ".parquet", ".bin", ".ds", ".mds", ".h5")
    assert len(runs) == len(GONE) - 1  # one is too short for the rule
    for root in (made, folder):
        found = {
            path.parent.name
            for path in (root / "root/tokens").rglob("*")
            if path.suffix in suffixes and "_segments" not in path.parts and ".len." not in path.name
            for run in runs
            if holds(path, run)
        }
        assert found == ({*FORMATS, "shuffled", "rows"} if root is made else set())


def test_all_else_is_byte_for_byte_as_before(made, done):
    folder, outcome = done
    before, after = tree(made / "root"), tree(folder / "root")
    changed = {change.path for change in outcome.changes}
    own = {path for path in after if "_journal/" not in path and "_tombstones/" not in path}
    assert {path for path in own if before.get(path, (0, b""))[1] != after[path][1]} == changed
    assert {path for path in before if "_journal/" not in path} == own


def test_other_lines_keep_their_bytes(made, done):
    folder, _ = done
    for path in ("a.jsonl.gz", "sub/é.jsonl.zst", "c.jsonl", "old.jsonl.bz2"):
        before, after = (text_of(one / "root/v0/documents" / path).splitlines() for one in (made, folder))
        kept = [line for line in before if json.loads(line)["id"] not in GONE]
        assert after == kept
    rows = [pq.read_table(one / "root/v0/documents/p.parquet").to_pylist() for one in (made, folder)]
    assert rows[1] == [row for row in rows[0] if row["id"] not in GONE]


def test_what_is_left_is_what_would_be_made_without_them(done, tmp_path):
    """Attributes and token files of the documents that stay are those that were never made with the others."""
    folder, _ = done
    shutil.copytree(folder / "root/v0/documents", tmp_path / "fresh/v0/documents")
    v0 = str(tmp_path / "fresh/v0")
    dk.tag(v0, ["char_length_v1", "gopher_v2"], **HERE)
    dk.tag(v0, ["whitespace_tokenizer_v1"], experiment="table", format="parquet", **HERE)
    for name in FORMATS:
        to, tokenizer = str(tmp_path / f"fresh/tokens/{name}"), str(folder / "tokenizer.json")
        dk.ragged(v0, to, tokenizer=tokenizer, format=name, eos="<|endoftext|>", where=RULE, **HERE)
    for path in sorted((tmp_path / "fresh").rglob("*")):
        own = path.relative_to(tmp_path / "fresh")
        if path.is_file() and "_journal" not in own.parts:
            ours = folder / "root" / own
            if path.suffix == ".parquet":
                assert pq.read_table(ours).equals(pq.read_table(path)), own
            elif path.suffix in (".gz", ".zst"):
                assert text_of(ours) == text_of(path), own
            else:
                assert ours.read_bytes() == path.read_bytes(), own


def test_nothing_is_left_to_do_afterwards(done):
    folder, _ = done
    outcomes = is_made(folder / "root", folder / "tokenizer.json")
    assert [(one.verb, one.done) for one in outcomes if one.done] == []
    for name in ("v0", "sub/v1", "packed"):
        assert dk.validate(str(folder / "root" / name), **HERE).exit_status == 0


def test_the_same_command_changes_nothing(done):
    folder, _ = done
    before = tree(folder / "root")
    again = removed(folder)
    assert tree(folder / "root") == before
    assert (again.done, again.exit_status, again.receipt) == (0, 0, "")


def test_the_receipt_says_what_was_done(done):
    folder, outcome = done
    receipt = json.loads((folder / "root" / outcome.receipt).read_text())
    assert {change["path"] for change in receipt["changes"]} == {change.path for change in outcome.changes}
    for change in receipt["changes"]:
        assert change["checksum"][1] == dk_checksum(folder / "root" / change["path"])
    assert receipt["unmatched"] == ["web\ta-5", "nobody"]
    assert {"quantiles", "dedupe"} <= {word for one in receipt["stale"] for word in one["why"].split()}


def dk_checksum(path: Path) -> str:
    from dolma_dask.io import files

    return files.checksum(str(path))


# what is written later


def test_an_untouched_source_gives_it_back_nowhere(done, tmp_path):
    folder, _ = done
    mixed = dk.mix(
        str(folder / "source"),
        to=str(folder / "root/v2"),
        dropped=str(folder / "root/d2"),
        dropped_documents=True,
        **HERE,
    )
    assert mixed.counts["documents_removed"] == len(GONE)
    assert mixed.counts["documents_in"] == mixed.counts["documents_out"] + len(GONE)
    (tmp_path / "clean.py").write_text("def same(text: str) -> str:\n    return text\n")
    changed = dk.transform(
        str(folder / "source"), f"{tmp_path}/clean.py:same", to=str(folder / "root/v3"), **HERE
    )
    assert changed.counts["documents_removed"] == len(GONE)
    converted = dk.convert(
        [str(folder / "source/documents")], to=str(folder / "root/v4"), skip=["old.jsonl.bz2"], **HERE
    )
    assert converted.counts["documents_removed"] == len(GONE)
    words = [marker(identity) for identity in GONE]
    for name in ("v2", "v3", "v4", "d2"):
        assert holding(folder / "root" / name, *words) == []
        shutil.rmtree(folder / "root" / name)


def test_tokens_of_an_untouched_source_hold_it_neither(done, tmp_path):
    world = Path(shutil.copytree(done[0], tmp_path / "w"))
    source, given = (
        str(world / "source"),
        {"tokenizer": str(world / "tokenizer.json"), "eos": "<|endoftext|>"},
    )
    rows = {"max_seq_length": 64, "min_sequence_len": 2}
    made = [
        dk.ragged(source, str(world / "root/more/ragged"), **given, **HERE),
        dk.ragged(source, str(world / "root/more/mixed"), **given, format="dolma", shuffle=True, **HERE),
        dk.hdf5(source, str(world / "root/more/rows"), **given, **rows, **HERE),
    ]
    assert [one.counts["documents_removed"] for one in made] == [len(GONE)] * 3
    for path in (world / "root/more").rglob("_segments/*.parquet"):
        assert not {*GONE} & {*pq.read_table(path)["id"].to_pylist()}


def test_without_tombstones_no_key_and_no_count_is_another(world):
    """What was made before there were any is still there."""
    assert [one.done for one in is_made(world / "root", world / "tokenizer.json")] == [0] * (9 + len(FORMATS))
    mixed = dk.mix(str(world / "source"), to=str(world / "elsewhere"), **HERE)
    assert "documents_removed" not in mixed.counts
    removed(world)
    again = dk.mix(str(world / "source"), to=str(world / "elsewhere"), **HERE)
    assert (again.done, again.skipped) == (0, 5)


def test_an_unfinished_takedown_is_in_the_keys(world):
    """Once there are tombstones, nothing that is made counts as finished because it was before."""
    removed(world)
    for path in (world / "root/_tombstones").glob("*.done"):
        path.unlink()
    mixed = dk.mix(
        str(world / "source"),
        to=str(world / "root/sub/v1"),
        where="source is not None",
        overwrite=True,
        **HERE,
    )
    for path in (world / "root/_tombstones").glob("*.jsonl"):
        path.with_suffix(".done").touch()
    assert (mixed.done, mixed.counts["documents_removed"]) == (5, len(GONE))


# lists and options


def test_a_rehearsal_writes_nothing_and_says_the_same(world):
    before = tree(world / "root")
    planned = removed(world, dry_run=True)
    assert tree(world / "root") == before
    rows = {change.path: (change.before.rows, change.after.rows) for change in planned.changes}
    made = {change.path: change for change in removed(world).changes}
    assert {path: (made[path].before.rows, made[path].after.rows) for path in rows} == rows
    beside = {change.what for path, change in made.items() if path not in rows}
    assert beside == {"beside", "segments"}


def test_hashed_tombstones_name_nobody(world):
    outcome = removed(world, hashed=True, reason="request 17")
    assert outcome.exit_status == 0
    tombstones = [path for path in (world / "root/_tombstones").rglob("*") if path.is_file()]
    text = b"".join(path.read_bytes() for path in tombstones)
    assert b"request 17" in text
    assert not any(f'"{one}"'.encode() in text for one in GONE)
    mixed = dk.mix(str(world / "source"), to=str(world / "root/v2"), **HERE)
    assert mixed.counts["documents_removed"] == len(GONE)


def test_foreign_attributes_go_along(world):
    """Files without a record lose the rows of the documents; those of no document go by their ids."""
    root = world / "root/v0/attributes/foreign"
    rows = [{"id": f"c-{n}", "attributes": {"k": [[0, 1, n]]}} for n in range(20)]
    write(root / "c.jsonl", rows)
    write(root / "nowhere.jsonl.gz", rows)
    removed(world)
    for path in ("c.jsonl", "nowhere.jsonl.gz"):
        found = [json.loads(line)["id"] for line in text_of(root / path).splitlines()]
        assert found == [f"c-{n}" for n in range(20) if n != 11]


def test_attributes_without_sources_lose_the_row_of_the_listed_source_alone(tmp_path):
    """Another source may have the same id, in the same file."""
    ids = ["7", "8", "7", "9"]
    lines = [
        document(f"x-{n}", n + 1) | {"id": one, "source": "web" if n < 2 else "books"}
        for n, one in enumerate(ids)
    ]
    rows = [{"id": one, "attributes": {"k": [[0, 1, n]]}} for n, one in enumerate(ids)]
    write(tmp_path / "root/documents/a.jsonl", lines)
    write(tmp_path / "root/attributes/foreign/a.jsonl", rows)
    write(tmp_path / "root/attributes/turned/a.jsonl", rows[::-1])
    (tmp_path / "ids.txt").write_text("web\t7\n")
    outcome = dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **HERE)
    assert text_of(tmp_path / "root/attributes/foreign/a.jsonl").decode() == "".join(
        f"{json.dumps(row)}\n" for row in rows[1:]
    )
    turned = text_of(tmp_path / "root/attributes/turned/a.jsonl").splitlines()
    assert [json.loads(row)["id"] for row in turned] == ["9", "8"]
    (note,) = (note for change in outcome.changes for note in change.notes)
    assert note == "1 rows have other ids than their documents"


def test_bad_records_are_known_by_their_own_id(tmp_path):
    """Broken ones by any id in them; others by their own, and not by one of something within."""
    shard = tmp_path / "root/documents/a.jsonl"
    kept = [document("x-1", 1), '{"parent": {"id": "x-2"}, "id": "other", "text": 7}']
    within = [
        '{"metadata": {"id": "z", "source": "s"}, "id": "x-2", "source": "web", "text": 7}',
        '{"metadata": {"id": "z", "source": "s"}, "id": "x-2", "text": "secret',
    ]
    write(shard, [*kept, *within])
    (tmp_path / "ids.txt").write_text("web\tx-2\n")
    dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **HERE)
    assert len(shard.read_text().splitlines()) == len(kept)


def test_bad_records_of_it_go_too(world):
    shard = world / "root/v0/documents/bad.jsonl"
    write(
        shard,
        [
            document("x-1", 1),
            '{"id": "a-3", "text": 7, "source": "web", "t": "secret003a"}',
            document("x-2", 2),
        ],
    )
    dk.tag(str(world / "root/v0"), ["char_length_v1", "gopher_v2"], **QUARANTINE, **HERE)
    quarantine = world / "root/v0/_quarantine/tag/bad.jsonl.jsonl"
    assert quarantine.read_text()
    outcome = removed(world)
    assert outcome.exit_status == 0
    assert quarantine.read_bytes() == b""
    assert len(shard.read_text().splitlines()) == 2
    rows = text_of(world / "root/v0/attributes/char_length_v1/bad.jsonl").splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["x-1", "x-2"]


def test_other_files_that_name_it_are_told(world):
    """Whatever their form: the id may stand in quotes, as a line or cell, between tags, or in a column of a table."""
    texts = {
        "notes.json": '{"first": "c-11"}',
        "raw/a.csv": "id,text\nc-11,x\n",
        "raw/b.tsv": "x\tc-11\n",
        "raw/c.txt": "c-11",
        "page.html": "<td>c-11</td>",
        "none.csv": "id,text\nc-110,c-1\n",
    }
    (world / "root/raw").mkdir()
    for path, text in texts.items():
        (world / "root" / path).write_text(text)
    write(world / "root/raw/d.parquet", [document("c-11", 1)] * 40)
    write(world / "root/raw/e.parquet", [document("c-110", 1)] * 40)
    outcome = removed(world)
    assert outcome.exit_status == 1
    assert {one.path for one in outcome.left} == {*texts, "raw/d.parquet"} - {"none.csv"}


def small(tmp_path: Path, *ids: str) -> Path:
    """Return a root with a small dataset, and write a list of some ids beside it."""
    root = tmp_path / "root"
    write(root / "v0/documents/a.jsonl", [document(name, n) for n, name in enumerate(["x-1", "x-2", *ids])])
    (tmp_path / "ids.txt").write_text("".join(f"{name}\n" for name in ids))
    return root


def test_raw_records_may_have_the_id_as_a_number(tmp_path):
    root = small(tmp_path, "12345")
    write(root / "raw/a.jsonl", [{"page": {"n": 1, "id": 12345}, "text": "a"}])
    write(root / "raw/b.jsonl", [{"id": 123456, "text": "a"}, {"id": 1.12345, "text": "12345"[1:]}])
    outcome = dk.remove(str(root), ids=str(tmp_path / "ids.txt"), **HERE)
    assert [one.path for one in outcome.left] == ["raw/a.jsonl"]


def test_other_files_that_cannot_be_read_are_told(tmp_path):
    root = small(tmp_path, "x-9999")
    write(root / "raw/table.parquet", [document(f"r-{n}", n) for n in range(40)])
    table = (root / "raw/table.parquet").read_bytes()
    packed = gzip.compress("".join(f'{{"id":"r-{n}"}}\n' for n in range(9000)).encode())
    contents = {
        "cut.jsonl.gz": packed[:-2000],
        "CUT.JSONL.GZ": packed[:-2000],
        "table.parquet": table[:-9],
        "plain.txt.gz": b"x-9999\n",  # text under a wrong name
        "empty.gz": b"",
        "whole.jsonl.gz": packed,
        "other.zip": b"PK\x03\x04",  # of no form that anybody reads
    }
    for name, content in contents.items():
        (root / "raw" / name).write_bytes(content)
    outcome = dk.remove(str(root), ids=str(tmp_path / "ids.txt"), **HERE)
    told = {one.path.removeprefix("raw/"): one.why for one in outcome.left}
    assert told.keys() == {"cut.jsonl.gz", "CUT.JSONL.GZ", "table.parquet", "plain.txt.gz"}
    assert "truncated" in told["cut.jsonl.gz"]
    assert told["plain.txt.gz"] == "has an id of the list in it"
    assert outcome.exit_status == 1


def test_an_id_may_be_a_word_of_the_records(tmp_path):
    """Else the alignment of attributes would be proved by less than before."""
    root = small(tmp_path, "text", "document", "kinds", "exact")
    v0 = str(root / "v0")
    dk.tag(v0, ["char_length_v1"], **HERE)
    dk.dedupe(v0, name="exact", **HERE)

    def told() -> list[Any]:
        records = [*Journal(v0, "tag").records.values(), *Journal(v0, "dedupe").records.values()]
        return [
            {name: one.info.get(name) for name in ("reads", "kinds", "key", "taggers")} for one in records
        ]

    before = told()
    assert dk.remove(str(root), ids=str(tmp_path / "ids.txt"), **HERE).exit_status == 0
    assert told() == before
    write(root / "v0/documents/a.jsonl", [document("x-1", 0), document("x-2", 1) | {"text": "changed"}])
    with pytest.raises(DolmaDaskError, match="other text"):
        dk.mix(v0, to=str(root / "v1"), where="char_length_v1__char_length_v1__length > 1", **HERE)


def test_no_receipt_takes_the_place_of_another(tmp_path):
    root = small(tmp_path, "x-9999")
    for name in ("x-9999", "x-1", "x-2"):
        (tmp_path / "ids.txt").write_text(f"{name}\n")
        outcome = dk.remove(str(root), ids=str(tmp_path / "ids.txt"), **HERE)
        if name == "x-1":
            (root / "_tombstones/receipts/000001.json").unlink()
    assert outcome.receipt == "_tombstones/receipts/000003.json"


def test_token_files_without_segments_are_told_and_written_again(world):
    """Those of documents that were changed, alone: the same command makes them anew."""
    folder = world / "root/tokens/numpy"
    shutil.rmtree(folder / "_segments")
    outcome = removed(world)
    assert outcome.exit_status == 1
    left = [one.path for one in outcome.left]
    assert left == [f"tokens/numpy/v0.{number:05d}-of-00005.data.npy" for number in (0, 1, 3, 4)]
    assert removed(world).exit_status == 1
    options = {"tokenizer": str(world / "tokenizer.json"), "eos": "<|endoftext|>", "where": RULE}
    again = dk.ragged(str(world / "root/v0"), str(folder), overwrite=True, **options, **HERE)
    assert again.done == 5
    assert removed(world).exit_status == 0


def tokenized(root: Path, folder: Path, documents: list[Any], **options: Any) -> Path:
    write(root / "v0/documents/a.jsonl", documents)
    dk.ragged(
        str(root / "v0"),
        str(root / "tokens"),
        tokenizer=str(folder / "tokenizer.json"),
        eos="none",
        **options,
        **HERE,
    )
    return root / "tokens"


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("name", ["numpy", "parquet"])
def test_segments_of_another_token_file_are_not_believed(name, journal, made, tmp_path):
    """A copy took the place of the file: nobody knows its rows, even those of no listed document; without a journal their number tells."""
    documents = [document(f"x-{n}", n + 1) for n in range(9)]
    tokens = tokenized(tmp_path / "root", made, documents, format=name)
    others = tokenized(tmp_path / "other", made, [document("y-1", 1), *documents], format=name)
    for path in others.iterdir():
        if path.is_file():
            shutil.copy(path, tokens)
    if not journal:
        shutil.rmtree(tokens / "_journal")
    before = {path: path.read_bytes() for path in tokens.glob("*.*")}
    for identity in ("x-3", "y-1")[: 1 + journal]:
        (tmp_path / "ids.txt").write_text(f"{identity}\n")
        outcome = dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **HERE)
        assert outcome.exit_status == 1
        assert "were not written together" in outcome.left[0].why
        assert {path: path.read_bytes() for path in tokens.glob("*.*")} == before
    if journal:
        options = {
            "tokenizer": str(made / "tokenizer.json"),
            "eos": "none",
            "format": name,
            "overwrite": True,
        }
        dk.ragged(str(tmp_path / "root/v0"), str(tokens), **options, **HERE)
        outcome = dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **HERE)
        assert outcome.exit_status == 0
        (segments,) = tokens.glob("_segments/*")
        assert pq.read_table(segments)["id"].to_pylist() == [f"x-{n}" for n in range(9) if n != 3]


def test_a_token_file_that_could_not_be_read_is_not_called_done(made, tmp_path):
    """Documents are cut, and its record speaks of those that it was made of: the same command makes it anew."""
    documents = [document(f"x-{n}", n + 1) for n in range(9)]
    tokens = tokenized(tmp_path / "root", made, documents)
    (segments,) = tokens.glob("_segments/*")
    segments.write_bytes(segments.read_bytes()[:-40])
    (tmp_path / "ids.txt").write_text("x-3\n")
    assert dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **HERE).exit_status == 1
    given = {"tokenizer": str(made / "tokenizer.json"), "eos": "none"}
    assert dk.ragged(str(tmp_path / "root/v0"), str(tokens), **given, **HERE).done == 1
    assert pq.read_table(segments)["id"].to_pylist() == [f"x-{n}" for n in range(9) if n != 3]
    assert dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **HERE).exit_status == 0


def documents_in(folder: Path) -> dict[str, list[tuple[str, bytes]]]:
    """Return the documents of each file of ids in the toolkit's format, with their ids as bytes, by the table beside it."""
    found = {}
    for path in sorted(folder.glob("*.npy")):
        ids, rows = (
            np.fromfile(path, "<i2"),
            list(csv.reader(text_of(path.with_suffix(".csv.gz")).decode().splitlines())),
        )
        found[path.name] = [(row[2], ids[int(row[0]) : int(row[1])].tobytes()) for row in rows]
        assert sum(int(row[1]) - int(row[0]) for row in rows) == len(ids)
        segments = read_segments(str(folder), path.name)
        assert segments["id"].to_pylist() == [row[2] for row in rows]
        assert segments["row"].to_pylist() == list(range(len(rows)))
    return found


def test_joined_token_files_lose_their_documents(made, tmp_path):
    """Files of `reshard` have no record of origin; each copy of a file goes."""
    root = tmp_path / "root"
    given = {"tokenizer": str(made / "tokenizer.json"), "eos": "<|endoftext|>", "format": "dolma"}
    for name in "ab":
        write(root / name / "documents/x.jsonl", [document(f"{name}-{n}", n) for n in range(9)])
        dk.ragged(str(root / name), str(root / f"tokens/{name}"), **given, **HERE)
    joined = {"sources": [str(root / "tokens/a"), str(root / "tokens/b")], "rates": [2.0, 1.0], "shards": 2}
    dk.reshard(str(root / "joined"), **joined, **HERE)
    before = documents_in(root / "joined")
    (tmp_path / "ids.txt").write_text("a-3\nb-5\n")
    outcome = dk.remove(str(root), ids=str(tmp_path / "ids.txt"), **HERE)
    assert outcome.exit_status == 0
    assert "joined" in [one.path for one in outcome.stale]
    expected = {name: [one for one in rows if one[0] not in ("a-3", "b-5")] for name, rows in before.items()}
    assert documents_in(root / "joined") == expected
    assert dk.reshard(str(root / "joined"), **joined, **HERE).done == 0
    (tmp_path / "ids.txt").write_text("".join(f"{name}-{n}\n" for name in "ab" for n in range(9)))
    assert dk.remove(str(root), ids=str(tmp_path / "ids.txt"), **HERE).exit_status == 0
    assert {name: len(rows) for name, rows in documents_in(root / "joined").items()} == dict.fromkeys(
        before, 0
    )


def test_tokens_with_ids_of_their_own_are_told_if_their_documents_have_changed(made, tmp_path):
    """With `id_key`, only rows of shards tell the documents of a token file."""
    root = tmp_path / "root"
    (tmp_path / "ids.txt").write_text("x-3\n")
    documents = [document(f"x-{n}", n + 1) | {"metadata": {"url": f"u/{n}"}} for n in range(9)]
    tokens = tokenized(root, made, documents, format="parquet", id_key="metadata.url")
    write(root / "v0/documents/a.jsonl", documents[1:])
    outcome = dk.remove(str(root), ids=str(tmp_path / "ids.txt"), **HERE)
    assert [one.path for one in outcome.left] == ["tokens/v0.00000-of-00001.parquet"]
    tokenized(root, made, documents, format="parquet", id_key="metadata.url", overwrite=True)
    for identity, left in (("x-3", 8), ("x-5", 7), ("x-5", 7)):
        (tmp_path / "ids.txt").write_text(f"{identity}\n")
        assert dk.remove(str(root), ids=str(tmp_path / "ids.txt"), **HERE).exit_status == 0
        assert pq.read_table(tokens / "v0.00000-of-00001.parquet").num_rows == left


def test_documents_made_elsewhere_of_raw_files_below_the_root_are_made_again(tmp_path):
    raw, target = tmp_path / "root/raw/a.jsonl", str(tmp_path / "elsewhere")
    write(raw, [document(f"r-{n}", n) for n in range(9)])
    dk.convert([str(raw.parent)], to=target, **HERE)
    (tmp_path / "ids.txt").write_text("r-4\n")
    dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **HERE)
    again = dk.convert([str(raw.parent)], to=target, **HERE)
    assert (again.done, again.counts["documents_out"], again.counts["documents_removed"]) == (1, 8, 1)
    assert dk.convert([str(raw.parent)], to=target, **HERE).done == 0


def test_members_of_clusters_go_and_the_others_are_found(tmp_path):
    """Clusters become smaller; one of a single document is none; rows and names are those of the files as they are now."""
    texts = {name: " ".join(f"{name}{word}" for word in range(60)) for name in "xyz"}
    places = [("x", 3), ("y", 2), ("z", 4)]
    copies = [(f"{name}-{n}", f"{texts[name]} {n}") for n in range(4) for name, count in places if n < count]
    lines = [{"id": one, "text": text, "source": "s"} for one, text in copies]
    write(tmp_path / "root/v0/documents/a.jsonl", lines[:5])
    write(tmp_path / "root/v0/documents/b.jsonl", lines[5:])
    v0 = str(tmp_path / "root/v0")
    dk.dedupe(v0, how="fuzzy", **HERE)
    (tmp_path / "ids.txt").write_text("x-0\ny-1\nz-2\n")
    outcome = dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **HERE)
    assert outcome.exit_status == 0
    table = pq.read_table(tmp_path / "root/v0/clusters/fuzzy.parquet").to_pylist()
    assert {row["id"] for row in table} == {"x-1", "x-2", "z-0", "z-1", "z-3"}
    for row in table:
        shard = (tmp_path / "root/v0/documents" / row["shard"]).read_text().splitlines()
        assert json.loads(shard[row["row"]])["id"] == row["id"]
        first = (tmp_path / "root/v0/documents" / row["cluster_shard"]).read_text().splitlines()
        assert json.loads(first[row["cluster_row"]])["id"] == {"x": "x-1", "z": "z-0"}[row["id"][0]]
        assert row["size"] == {"x": 2, "z": 3}[row["id"][0]]
    shown = dk.show_cluster(v0, "z-3")
    assert {member.id for member in shown.members} == {"z-0", "z-1", "z-3"}
    assert dk.dedupe(v0, how="fuzzy", **HERE).done == 0


def test_a_file_that_cannot_be_read_keeps_nobody_from_the_rest(world):
    """It is told, and the same command ends what is left once it is mended."""
    shard = world / "root/v0/documents/sub/é.jsonl.zst"
    stored = shard.read_bytes()
    shard.write_bytes(stored[:-9])
    outcome = removed(world)
    assert outcome.exit_status == 1
    assert [one.path for one in outcome.left] == ["v0/documents/sub/é.jsonl.zst"]
    assert holding(world / "root/sub/v1", *(marker(identity) for identity in GONE)) == []
    assert list((world / "root/_tombstones").glob("*.done")) == []
    shard.write_bytes(stored)
    assert removed(world).exit_status == 0
    assert holding(world / "root", *(marker(identity) for identity in GONE)) == []
    assert not (world / "root/_work").exists()
    assert sum(one.done for one in is_made(world / "root", world / "tokenizer.json")) == 0


def test_a_takedown_that_was_stopped_ends_before_another_begins(world):
    """Files that it has changed are searched for the ids of the other list too."""
    shard = world / "root/v0/documents/sub/é.jsonl.zst"
    stored = shard.read_bytes()
    shard.write_bytes(stored[:-9])
    assert removed(world, reason="first").exit_status == 1
    (world / "ids.txt").write_text("a-9\né-7\nc-11\n")
    with pytest.raises(UsageError, match="another list was stopped"):
        removed(world, dry_run=True)
    stopped = removed(world)
    assert (stopped.exit_status, stopped.tombstones) == (1, 0)
    assert "nothing of this list was done" in stopped.notes[-1]
    assert holding(world / "root/sub", marker("a-9")) != []
    shard.write_bytes(stored)
    assert removed(world, reason="second").exit_status == 0
    gone = (*GONE, "a-9", "é-7")
    assert holding(world / "root", *(marker(identity) for identity in gone)) == []
    receipts = [
        json.loads(path.read_bytes()) for path in sorted((world / "root/_tombstones/receipts").iterdir())
    ]
    assert [one["reason"] for one in receipts][-2:] == ["first", "second"]
    assert sum(one.done for one in is_made(world / "root", world / "tokenizer.json")) == 0


@pytest.mark.parametrize(
    ("first", "second"), [("root", "root/v0"), ("root/v0", "root"), ("root/tokens/mds", "root")]
)
def test_takedowns_of_folders_in_one_another_exclude_each_other(world, first, second):
    """Both would write the same files, and the later copy would bring back what the other took out."""
    with (
        lease.leased(str(world / first / announced.WORK), "remove"),
        pytest.raises(UsageError, match="another remove"),
    ):
        dk.remove(str(world / second), ids=str(world / "ids.txt"), **HERE)
    assert dk.remove(str(world / second), ids=str(world / "ids.txt"), **HERE).exit_status == 0


def test_a_list_of_nobody_changes_no_document(world):
    (world / "ids.txt").write_text("nobody\n")
    before = tree(world / "root")
    outcome = removed(world)
    assert outcome.unmatched == ("nobody",)
    after = tree(world / "root")
    assert {path for path in after if after[path] != before.get(path)} == {
        path for path in after if path.startswith(("_tombstones/", "_journal/remove/"))
    }


def test_mistakes_are_refused(world):
    with pytest.raises(UsageError, match="no such file"):
        dk.remove(str(world / "root"), ids=str(world / "none.txt"), **HERE)
    with pytest.raises(UsageError, match="holds no file"):
        dk.remove(str(world / "nowhere"), ids=str(world / "ids.txt"), **HERE)


# kills


def count_appeared(monkeypatch: pytest.MonkeyPatch, dies_at: int = -1) -> list[str]:
    """Return the folders in which files appear from now on; the process dies at one of them, by its number."""
    appeared: list[str] = []
    fsync = publish.fsync_folder

    def counted(folder: Path) -> None:
        fsync(folder)
        appeared.append(str(folder))
        if len(appeared) == dies_at:
            os._exit(9)

    monkeypatch.setattr(publish, "fsync_folder", counted)
    return appeared


def killed(world: Path, moment: int) -> int:
    """Take documents down in another process, which dies after so many files have appeared; return its exit status."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        count_appeared(pytest.MonkeyPatch(), moment)
        removed(world)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.fixture(scope="module")
def moments(made: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return how many files appear in a takedown."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("counted") / "w"))
    with pytest.MonkeyPatch.context() as patch:
        appeared = count_appeared(patch)
        removed(folder)
    return len(appeared)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("part", range(16))
def test_killed_anywhere_the_same_command_ends_it(world, done, moments, part):
    """Whatever file was the last to appear, twice, the end is that of an undisturbed run."""
    assert killed(world, 1 + part * moments // 16) == 9
    assert killed(world, 1 + (part * 7 % 16) * moments // 40) in (0, 9)
    removed(world)
    expected, found = tree(done[0] / "root"), tree(world / "root")
    own = [path for path in expected if "_journal/" not in path]
    assert {path for path in found if "_journal/" not in path} == set(own)
    assert [path for path in own if found[path][1] != expected[path][1]] == []
    assert not (world / "root/_work").exists()
    if part % 4 == 0:
        assert sum(one.done for one in is_made(world / "root", world / "tokenizer.json")) == 0


def test_announced_changes_are_those_of_their_file(tmp_path):
    work = announced.Work(str(tmp_path))
    assert work.announced("documents/a.jsonl") is None
    assert work.all_done() == []
