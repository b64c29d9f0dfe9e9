"""Kinds of files, and the files of each shard."""

import gzip
import json
import os
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.io.files import FileInfo, checksum, list_files
from dolma_dask.io.records import InputRecord
from dolma_dask.sources import PRESETS, FieldMapping, open_sources, plan, plan_shards, preset
from dolma_dask.sources.csv import CsvFile
from dolma_dask.sources.jsonl import JsonLines
from dolma_dask.sources.mbox import Mailbox
from dolma_dask.sources.naming import SINGLE, document_path, known_suffixes, list_raw, split_suffix
from dolma_dask.sources.parquet import ParquetTable
from dolma_dask.sources.tar import TarArchive
from dolma_dask.sources.text import TextFiles
from dolma_dask.sources.warc import WarcArchive

NAMED = FieldMapping(source_name="s")


@pytest.mark.parametrize(
    "path, stem, kind, compression",
    [
        ("en/c4-train.00000-of-01024.json.gz", "en/c4-train.00000-of-01024", "jsonl", "gzip"),
        ("a.jsonl", "a", "jsonl", None),
        ("a.b.JSONL.ZST", "a.b", "jsonl", "zstd"),
        ("train/00.jsonl.zst.tar", "train/00", "tar", None),
        ("x.tar", "x", "tar", None),
        ("x.parquet", "x", "parquet", None),
        ("x.parquet.txt", "x.parquet", "text", None),
        ("x.md.gz", "x", "text", "gzip"),
        ("x/part-0001.gz", "x/part-0001", "jsonl", "gzip"),
        ("x.JSON.BZ2", "x", "jsonl", "bz2"),
    ],
)
def test_names_are_read(path: str, stem: str, kind: str, compression: str | None) -> None:
    name = split_suffix(path)
    assert (name.stem, name.kind, name.compression) == (stem, kind, compression)
    assert document_path(path) == f"{stem}.jsonl.gz"


@pytest.mark.parametrize("path", ["a.doc", "a", "a.jsonl.bz", "a.tar.gz", "a.parquet.gz", "jsonl"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(path: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_suffix(path)
    assert all(suffix in str(caught.value) for suffix in (".jsonl", ".csv", ".parquet", ".gz or .zst"))


@pytest.mark.parametrize("suffix", known_suffixes())
def test_every_known_suffix_has_its_source(suffix: str) -> None:
    kinds: dict[str, type] = {"jsonl": JsonLines, "parquet": ParquetTable, "tar": TarArchive, "mbox": Mailbox}
    kinds |= dict.fromkeys(SINGLE, TextFiles) | dict.fromkeys(("csv", "tsv"), CsvFile)
    kinds["warc"] = WarcArchive
    (source,) = open_sources("s3://b/raw", [FileInfo(f"x{suffix}", 1, "")], NAMED)
    assert type(source) is kinds[split_suffix(suffix).kind]


def test_records_keep_their_paths_and_texts_share_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["b/x.json.gz", "c.parquet", "t/1.txt", "t/2.md", "t/3.txt"]
    files = [FileInfo(name, 10, "mtime:1") for name in names]
    monkeypatch.setattr(plan, "TEXT_SHARD_BYTES", 20)
    shards = plan_shards(files)
    assert [(shard.path, [file.path for file in shard.files], shard.bytes) for shard in shards] == [
        ("b/x.jsonl.gz", ["b/x.json.gz"], 10),
        ("c.jsonl.gz", ["c.parquet"], 10),
        ("text-00000.jsonl.gz", ["t/1.txt", "t/2.md"], 20),
        ("text-00001.jsonl.gz", ["t/3.txt"], 10),
    ]
    sources = open_sources("raw", [info for shard in shards for info in shard.files], NAMED)
    assert [type(source) for source in sources] == [JsonLines, ParquetTable, TextFiles, TextFiles]
    monkeypatch.setattr(plan, "TEXT_SHARD_FILES", 1)
    assert len(plan_shards(files)) == 5


def test_two_files_of_one_name_are_refused() -> None:
    files = [FileInfo("a.jsonl", 1, ""), FileInfo("a.parquet", 1, "")]
    with pytest.raises(UsageError, match=r"a\.jsonl and a\.parquet"):
        plan_shards(files)


def test_a_planned_shard_is_read_in_the_order_of_the_listing(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "é.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name, encoding="utf-8")
    (shard,) = plan_shards(list_files(str(tmp_path)))
    (source,) = open_sources(str(tmp_path), shard.files, NAMED)
    (block,) = source.read()
    assert block.batch.column("id").to_pylist() == ["a/z.txt", "b.txt", "é.txt"]


def test_files_are_recorded_with_the_checksums_of_all_their_bytes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "a.parquet")
    tarfile.open(tmp_path / "b.tar", "w").close()
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text":"t"}\n'))
    for name in ("d.txt", "e.txt"):
        (tmp_path / name).write_text(name)
    listed = list_files(str(tmp_path))
    inputs: list[InputRecord] = []
    for source in open_sources(str(tmp_path), listed, NAMED):
        assert list(source.read(inputs)) or isinstance(source, TarArchive)
    assert [(item.path, item.bytes, item.checksum) for item in inputs] == [
        (info.path, info.bytes, checksum(str(tmp_path / info.path))) for info in listed
    ]


def test_presets_are_found_by_name() -> None:
    assert preset("redpajama_v2").text == "raw_content"
    assert preset("dolma").is_default
    assert len({mapping.canonical() for mapping in PRESETS.values()}) == len(PRESETS)
    with pytest.raises(UsageError, match="redpajama_v2"):
        preset("redpajama")


@pytest.mark.conformance
def test_ids_of_redpajama_v2_are_those_of_its_signals(shared: Path) -> None:
    root = shared / "conformance" / "rpv2"
    path = "2023-06/0000/de_head.json.gz"
    (source,) = open_sources(str(root / "documents"), [FileInfo(path, 1, "")], preset("redpajama_v2"))
    ids = [value for block in source.read() for value in block.batch.column("id").to_pylist()]
    signals = next((root / "quality_signals").rglob("2023-06/0000/de_head.signals.json.gz"))
    with gzip.open(signals) as lines:
        assert {json.loads(line)["id"] for line in lines} <= set(ids)


def test_a_pipe_is_no_raw_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.jsonl")
    with pytest.raises(UsageError, match=r"p\.jsonl: a pipe, socket or device"):
        list_raw([str(tmp_path / "p.jsonl")])
