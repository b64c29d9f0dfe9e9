"""Real text for the demo, from the Python installation it runs in: no network, the same bytes every time.

Five kinds, each in its own folder below ``raw/`` and in another raw form, so that converting them is real work:

============  ======================================  ==========================================================
folder        what                                    raw form
============  ======================================  ==========================================================
descriptions  long descriptions of the installed      one ``.jsonl.gz``; fields name, version, description, info
              distributions
licences      their licence files, with many exact    plain ``.txt`` files in folders
              and near duplicates
stdlib        long docstrings of the standard         two ``.json.gz``, numbered as C4 is; records have no ids
              library
topics        the help texts of the language          one ``.jsonl.zst.tar``; the text lies inside an object
              reference
api           long docstrings of large packages       one ``.parquet`` with a nested column
============  ======================================  ==========================================================

``manifest.json`` says what there is, and with which mapping each folder is to be converted. Cost: 4 CPU-seconds, nearly all of it
for parsing modules; about 5,200 documents and 8 MB of text where only the project's own dependencies are installed, in English.
"""

import gzip
import io
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from msgspec import Struct

from dolma_dask.io.files import list_files
from dolma_dask.io.publish import publish
from dolma_dask.metering import without_collection
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.testing import python_texts
from dolma_dask.testing.python_texts import Text

VERSION = 2
"""Raised whenever the same installation gives other raw files than before."""

MANIFEST = "manifest.json"


class RawSet(Struct, frozen=True):
    """The raw files of one kind, in the folder ``raw/<kind>``."""

    kind: str
    files: int  # how many
    documents: int  # in them
    text_bytes: int  # UTF-8 bytes of the texts of these
    bytes: int  # stored
    # xxh3-128 over path and content of each file, in the order of paths, each with its length before it (8 bytes, little-endian)
    checksum: str
    mapping: FieldMapping  # how the records become documents


class Manifest(Struct, frozen=True):
    """Record of what was collected, and from which sources."""

    version: int  # `VERSION` of the collector
    python: str  # implementation and version of the interpreter
    packages: str  # xxh3-128 of the names and versions of all installed distributions
    sets: tuple[RawSet, ...]  # one per kind

    @property
    def documents(self) -> int:
        """Number of documents of all kinds."""
        return sum(item.documents for item in self.sets)

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all texts."""
        return sum(item.text_bytes for item in self.sets)


def collect_corpus(folder: str | Path) -> Manifest:
    """Collect the corpus into `folder`, which gets ``raw/`` and, last, ``manifest.json``, or return at once if it is there already.

    An older corpus there is replaced when the interpreter or the installed distributions have changed, or a file of it is missing.
    """
    folder = Path(folder)
    python, packages = _interpreter(), _package_digest()
    known = read_manifest(folder)
    if (
        known
        and (known.version, known.python, known.packages) == (VERSION, python, packages)
        and _is_whole(folder, known)
    ):
        return known
    folder.mkdir(parents=True, exist_ok=True)
    with without_collection(), tempfile.TemporaryDirectory(prefix=".raw-", dir=folder) as scratch:
        sets = tuple(_write(Path(scratch), kind) for kind in _KINDS)
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder / "raw", ignore_errors=True)
        Path(scratch, "raw").replace(folder / "raw")
    manifest = Manifest(VERSION, python, packages, sets)
    with publish(str(folder / MANIFEST)) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    return manifest


def read_manifest(folder: str | Path) -> Manifest | None:
    """Return the manifest of a corpus, or None if there is none that this version can read."""
    path = Path(folder, MANIFEST)
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.MsgspecError:
        return None


def _interpreter() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def _package_digest() -> str:
    names = [f"{item.metadata['Name']}=={item.version}" for item in python_texts.distributions()]
    return xxhash.xxh3_128_hexdigest("\n".join(names).encode())


def _is_whole(folder: Path, manifest: Manifest) -> bool:
    for item in manifest.sets:
        found = list_files(str(folder / "raw" / item.kind))
        if (len(found), sum(file.bytes for file in found)) != (item.files, item.bytes):
            return False
    return True


class _Kind(Struct, frozen=True):
    """Collection of one kind: at most so many bytes of the texts of a source, and how they are put into a folder."""

    name: str
    source: Callable[[], Iterable[Text]]
    max_bytes: int
    write: Callable[[Path, Sequence[Text]], object]
    mapping: FieldMapping


def _write(scratch: Path, kind: _Kind) -> RawSet:
    folder = scratch / "raw" / kind.name
    folder.mkdir(parents=True)
    items = python_texts.capped(kind.source(), kind.max_bytes)
    kind.write(folder, items)
    files = list_files(str(folder))
    return RawSet(
        kind=kind.name,
        files=len(files),
        documents=len(items),
        text_bytes=sum(len(item.text.encode()) for item in items),
        bytes=sum(file.bytes for file in files),
        checksum=_checksum(folder, [file.path for file in files]),
        mapping=kind.mapping,
    )


def _checksum(folder: Path, paths: Sequence[str]) -> str:
    digest = xxhash.xxh3_128()
    for path in paths:
        for part in (path.encode(), (folder / path).read_bytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _json_lines(records: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=6, mtime=0)


def _halves(items: Sequence[Text]) -> Iterator[tuple[int, Sequence[Text]]]:
    half = (len(items) + 1) // 2
    return enumerate((items[:half], items[half:]))


def _write_descriptions(folder: Path, items: Sequence[Text]) -> None:
    records = [
        {
            "name": item.about["Name"],
            "version": item.about["Version"],
            "description": item.text,
            "info": {"summary": item.about["Summary"], "requires_python": item.about["Requires-Python"]},
        }
        for item in items
    ]
    (folder / "packages.jsonl.gz").write_bytes(_gzip(_json_lines(records)))


def _write_licences(folder: Path, items: Sequence[Text]) -> None:
    for item in items:
        name = item.about["path"]
        path = folder / (name if name.lower().endswith(".txt") else f"{name}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(item.text.encode())


def _write_stdlib(folder: Path, items: Sequence[Text]) -> None:
    for number, part in _halves(items):
        records = [
            {"text": item.text, **{name: item.about[name] for name in ("module", "name", "line")}}
            for item in part
        ]
        path = folder / f"docstrings.{number:05d}-of-00002.json.gz"
        path.write_bytes(_gzip(_json_lines(records)))


def _write_topics(folder: Path, items: Sequence[Text]) -> None:
    codec = pa.Codec("zstd", compression_level=3)
    with tarfile.open(folder / "topics.jsonl.zst.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, part in _halves(items):
            records = [{"content": {"title": item.about["title"], "body": item.text}} for item in part]
            data = codec.compress(_json_lines(records), asbytes=True)
            member = tarfile.TarInfo(f"topics-{number}.jsonl.zst")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _write_api(folder: Path, items: Sequence[Text]) -> None:
    rows = [
        {
            "key": f"{item.about['module']}:{item.about['name'] or '-'}:{item.about['line']}",
            "docstring": item.text,
            "where": item.about,
        }
        for item in items
    ]
    where = pa.struct(
        {"package": pa.string(), "module": pa.string(), "name": pa.string(), "line": pa.int32()}
    )
    schema = pa.schema({"key": pa.string(), "docstring": pa.string(), "where": where})
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, folder / "api.parquet", compression="zstd", row_group_size=1000)


_KINDS = (
    _Kind(
        "descriptions",
        python_texts.descriptions,
        3_000_000,
        _write_descriptions,
        FieldMapping(id="name", text="description", source_name="descriptions"),
    ),
    _Kind(
        "licences", python_texts.licences, 3_000_000, _write_licences, FieldMapping(source_name="licences")
    ),
    _Kind(
        "stdlib",
        python_texts.standard_library_docstrings,
        3_000_000,
        _write_stdlib,
        FieldMapping(source_name="stdlib"),
    ),
    _Kind(
        "topics",
        python_texts.topics,
        2_000_000,
        _write_topics,
        FieldMapping(id="content.title", text="content.body", source_name="topics"),
    ),
    _Kind(
        "api",
        python_texts.package_docstrings,
        8_000_000,
        _write_api,
        FieldMapping(id="key", text="docstring", source_name="api"),
    ),
)
