"""Published documents that are combined by language or bucket are the same documents, under the same ids and in the same order."""

import gzip
import json
from collections import defaultdict
from operator import itemgetter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dolma_dask as dk

pytestmark = pytest.mark.conformance

HERE = {"scheduler": "synchronous", "progress": False}


def lines_of(root: Path) -> dict[str, list[bytes]]:
    """Return the documents of each folder of languages, or of languages and buckets; that of the raw files is in their ids."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    folder = root / "documents"
    for path in sorted(folder.rglob("*.gz"), key=lambda path: str(path.relative_to(folder)).encode()):
        found[path.parent.name] += gzip.decompress(path.read_bytes()).splitlines()
    return found


def name_of(line: bytes) -> str:
    identity: str = json.loads(line)["id"]
    return identity.split("/")[2].partition(".")[0]


@pytest.mark.parametrize(("combine", "files"), [("language", 5), ("bucket", 10)])
def test_combined_documents_are_the_published_ones(
    shared: Path, tmp_path: Path, combine: str, files: int
) -> None:
    raw = str(shared / "conformance/rpv2/documents")
    options = {"mapping": "redpajama_v2", **HERE}
    dk.convert(raw, to=str(tmp_path / "plain"), **options)
    dk.convert(raw, to=str(tmp_path / "combined"), combine=combine, **options)
    plain = [line for lines in lines_of(tmp_path / "plain").values() for line in lines]
    found = lines_of(tmp_path / "combined")
    assert len(plain) == 489
    assert len(found) == files
    for name, lines in found.items():
        ours = [line for line in plain if name in (name_of(line), name_of(line).partition("_")[0])]
        assert lines == sorted(ours, key=plain.index)


def test_published_tables_meet_combined_documents(shared: Path, tmp_path: Path) -> None:
    """Signals, duplicates and signatures are those of the documents when each file has a shard of its own."""
    published = shared / "conformance/rpv2"
    found = {}
    for name, more in (("plain", {}), ("combined", {"combine": "language", "shard_bytes": 30_000})):
        root = str(tmp_path / name)
        dk.convert(str(published / "documents"), to=root, mapping="redpajama_v2", **more, **HERE)
        signals = dk.attach(root, str(published / "quality_signals"), name="rps", **HERE).counts
        flags = dk.attach(root, str(published / "duplicates"), name="exact", **HERE).counts
        tables = {"scheme": "redpajama_v2", "signatures": str(published / "minhash")}
        fuzzy = dk.dedupe(root, how="fuzzy", keep="longest", **tables, **HERE).counts
        found[name] = (attributes_of(tmp_path / name), {**signals, **flags, **fuzzy})
    assert len(found["plain"][0]) == 489
    assert found["combined"] == found["plain"]
    shards = sorted((tmp_path / "combined/documents").rglob("*.gz"))
    assert 5 < len(shards) < 30, "some shards of several files, and several of a language"


def test_combined_tables_make_the_clusters_of_the_published_ones(shared: Path, tmp_path: Path) -> None:
    """A table for each shard, made of the published tables of its files, has their rows; all duplicates are the same."""
    published, root = shared / "conformance/rpv2", str(tmp_path / "v0")
    more = {"combine": "language", "shard_bytes": 30_000}
    dk.convert(str(published / "documents"), to=root, mapping="redpajama_v2", **more, **HERE)
    many, few = str(published / "minhash"), str(tmp_path / "minhash")
    dk.sign(root, few, signatures=many, **HERE)
    rows = [
        [row for path in sorted(Path(folder).rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]
        for folder in (many, few)
    ]
    assert sorted(rows[0], key=itemgetter("id")) == sorted(rows[1], key=itemgetter("id"))
    assert len(list(Path(few).rglob("*.parquet"))) == len(list((tmp_path / "v0/documents").rglob("*.gz")))
    found = []
    for name, tables in (("many", many), ("few", few)):
        options = {"scheme": "redpajama_v2", "signatures": tables, "name": name, **HERE}
        counts = dk.dedupe(root, how="fuzzy", keep="longest", **options).counts
        clusters = pq.read_table(tmp_path / f"v0/clusters/{name}.parquet").to_pylist()
        flags = [
            gzip.decompress(path.read_bytes()).replace(name.encode(), b"")
            for path in sorted((tmp_path / f"v0/attributes/{name}").rglob("*.gz"))
        ]
        found.append((counts, clusters, flags))
    assert found[0] == found[1]
    assert found[0][0]["duplicates"] > 0


def attributes_of(root: Path) -> dict[str, list[object]]:
    """Return the attributes of each document in the sets rps and exact, by its id."""
    found: defaultdict[str, list[object]] = defaultdict(list)
    for name in ("rps", "exact"):
        for path in sorted((root / "attributes" / name).rglob("*.gz")):
            for line in gzip.decompress(path.read_bytes()).splitlines():
                row = json.loads(line)
                found[row["id"]].append(row["attributes"])
    return found
