"""Published documents that are combined by language or bucket are the same documents, under the same ids and in the same order."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

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


def attributes_of(root: Path) -> dict[str, list[object]]:
    """Return the attributes of each document in the sets rps and exact, by its id."""
    found: defaultdict[str, list[object]] = defaultdict(list)
    for name in ("rps", "exact"):
        for path in sorted((root / "attributes" / name).rglob("*.gz")):
            for line in gzip.decompress(path.read_bytes()).splitlines():
                row = json.loads(line)
                found[row["id"]].append(row["attributes"])
    return found
