"""Small datasets with files in many members, and what plain Python says is in them."""

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import dolma_dask as dk

SHARDS = {"a": 40, "n/b": 3, "n/c": 1, "n/empty": 0, "z": 30}
"""Names without suffix, and rows; the order is that of the paths."""

FORMATS = [("jsonl.gz", None), ("jsonl.zst", "parquet"), ("jsonl", None), ("parquet", "jsonl.zst")]
"""Formats of documents and attributes."""

MANY = 2500
"""Bytes per partition that cut the larger shards into many."""

WORDS = ["the", "naïve", "日本語", "👩‍🚀", "x" * 30, "a\u2028b", 'say "no"', "\\u0041", "\x00", "ﬁne", "ﷺ"]

LENGTH = "shape_v1__shape_v1__length"
SPANS = "shape_v1__shape_v1__words"
COUNT = "shape_v1__shape_v1__count"
SHORT = "shape_v1__shape_v1__short"
FIRST = "first_v1__first_v1__word"
SCORES = "scores_v1__scores_v1__score"

ATTRIBUTES = (LENGTH, SPANS, COUNT, SHORT, FIRST, f"{SCORES}.en", f"{SCORES}.de")
FIELDS = ("metadata.lang", "metadata.n", "metadata.ok")


@dk.tagger(
    name="shape_v1", types={"length": "document", "words": "spans", "count": int, "short": bool}, version=1
)
def shape(text: str) -> dict[str, Any] | None:
    """Everything that an attribute can be."""
    words = text.split(" ")
    if len(words) == 3:
        return None
    return {
        "length": len(text) / 7,
        "words": [(0, len(words[0]), 0.5), (len(words[0]), len(text), 2)],
        "count": len(words),
        "short": len(text) < 20 if len(words) % 2 else None,
    }


@dk.tagger(name="first_v1", types={"word": "scalar"}, version=1, batch=True)
def first(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The first word."""
    words = [text.split(" ")[0] or None for text in batch.column("text").to_pylist()]
    return pa.RecordBatch.from_arrays([pa.array(words, pa.large_string())], names=["word"])


@dk.tagger(name="scores_v1", types={"score": "dict"}, version=1)
def scores(text: str) -> dict[str, float]:
    """Two numbers by name."""
    return {"en": len(text) / 3, "de": float(text.count("a"))}


def make_rows(seed: int, shards: Mapping[str, int] = SHARDS) -> dict[str, list[dict[str, Any]]]:
    """Return documents by shard."""
    draw = random.Random(seed)
    return {
        name: [_document(draw, f"{name}-{number}") for number in range(count)]
        for name, count in shards.items()
    }


def _document(draw: random.Random, id: str) -> dict[str, Any]:
    text = " ".join(draw.choices(WORDS, k=draw.randrange(1, 12)))
    document = {"id": id, "text": text, "source": draw.choice(["web", "bücher"])}
    if draw.random() < 0.8:
        document["metadata"] = {"lang": draw.choice(["en", "dé"]), "n": draw.random(), "ok": True, "l": [1]}
    return document


ROWS = make_rows(1)
"""Documents of the datasets that tests share."""


def make_dataset(
    root: Path,
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    format: str = "jsonl.gz",
    attributes: str | None = None,
) -> Path:
    """Write a dataset by the verbs themselves, in members of a few rows, with attribute sets first_v1, scores_v1 and shape_v1."""
    raw = root.with_name(f"{root.name}-raw")
    for name, documents in rows.items():
        path = raw / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents),
            encoding="utf-8",
            newline="\n",
        )
    options = {"scheduler": "synchronous", "progress": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dolma_dask.sinks.jsonl.MEMBER_BYTES", 900)
        patch.setattr("dolma_dask.sinks.documents.ROW_GROUP_BYTES", 900)
        patch.setattr("dolma_dask.sinks.documents.CHUNK_BYTES", 300)
        patch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_ROWS", 7)
        assert dk.convert(str(raw), to=str(root), format=format, **options).exit_status == 0
        assert dk.tag(str(root), [shape, scores, first], format=attributes, **options).exit_status == 0
    return root


def expected(rows: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> list[Any]:
    """Return the values of a column as plain Python finds them, None where there is none."""
    return [_value(document, name) for shard in sorted(rows) for document in rows[shard]]


def _value(document: Mapping[str, Any], name: str) -> Any:
    if name == "metadata":
        return document.get("metadata")
    if name.startswith("metadata."):
        return (document.get("metadata") or {}).get(name.removeprefix("metadata."))
    if "__" not in name:
        return document.get(name)
    key = name.rsplit("__", 1)[1]
    if key.startswith("score."):
        return scores.function(document["text"])[key.removeprefix("score.")]
    if key == "word":
        return document["text"].split(" ")[0] or None
    value = (shape.function(document["text"]) or {}).get(key)
    if key == "words" and value is not None:
        return [list(span) for span in value]
    return round(value, 5) if key == "length" and value is not None else value


def values(series: pd.Series) -> list[Any]:
    """Return a column of a frame as `expected` does."""
    found = series.astype(object).where(series.notna(), None).tolist()
    if series.name == "metadata":
        return [None if text is None else json.loads(text) for text in found]
    if isinstance(series.dtype, pd.ArrowDtype):
        return [
            None if spans is None else [[span["start"], span["end"], span["score"]] for span in spans]
            for spans in found
        ]
    return found


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the lines of a plain or gzipped file."""
    is_packed = path.name.endswith(".gz")
    data = path.read_bytes()
    lines = (gzip.decompress(data) if is_packed else data).splitlines(keepends=True)
    changed = b"".join(change(lines))
    path.write_bytes(gzip.compress(changed, mtime=0) if is_packed else changed)


@dataclass
class Parsed:
    """Work of readers: columns of documents, keys of attributes, tables and files."""

    documents: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    opened: list[str] = field(default_factory=list)
    blocks: int = 0

    def clear(self) -> None:
        self.documents, self.attributes, self.opened, self.blocks = set(), set(), [], 0

    @property
    def documents_opened(self) -> list[str]:
        return [url for url in self.opened if "/documents/" in url]


def count_parsed(patch: pytest.MonkeyPatch) -> Parsed:
    """Count in this process what is parsed, where it is parsed."""
    seen = Parsed()
    from dolma_dask.io import attributes, documents, files, parquet

    scan_documents, scan_attributes = documents.scan_documents, attributes.scan_attributes
    read_batches, open_read, open_parquet = parquet.read_batches, files.open_read, parquet.open_parquet

    def documents_scanned(data, starts, wanted):
        seen.documents.update(item.name for item in wanted)
        seen.blocks += 1
        return scan_documents(data, starts, wanted)

    def attributes_scanned(data, starts, kinds, form, **options):
        if len(starts) > 1:
            seen.attributes.update(kinds)
            seen.blocks += 1
        return scan_attributes(data, starts, kinds, form, **options)

    def batches_read(url, file, columns, *rest, **more):
        names = seen.documents if "/documents/" in url else seen.attributes
        names.update(columns)
        seen.blocks += 1
        return read_batches(url, file, columns, *rest, **more)

    def opened(open_file):
        def open_and_tell(url, **options):
            seen.opened.append(url)
            return open_file(url, **options)

        return open_and_tell

    patch.setattr(documents, "scan_documents", documents_scanned)
    patch.setattr(attributes, "scan_attributes", attributes_scanned)
    for module in (parquet, documents, attributes):
        patch.setattr(module, "read_batches", batches_read)
        patch.setattr(module, "open_parquet", opened(open_parquet))
    patch.setattr(files, "open_read", opened(open_read))
    patch.setattr("dolma_dask.io.stored.open_read", opened(open_read))
    return seen
