"""The originals of `benchmarks.corpus`, repeated to any size: new ids, each repetition in shards of its own, the text as it is.

So all but the first repetition are exact copies of documents in other shards, unless only some of them shall be alike.
"""

import gzip
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpus import default_origin, original_lines, shared_folder

MIN_REPETITIONS = 4
"""Fewest repetitions of the originals; a small corpus takes fewer originals."""

SHARD_MB = 10
"""Text of a shard, about."""


def write_documents(folder: Path, megabytes: float, alike: float = 1.0, shard_mb: float = SHARD_MB) -> float:
    """Write the corpus to `folder`; return its MB of text.

    Parameters
    ----------
    folder : Path
        Gets a folder of shards for each repetition.
    megabytes : float
        UTF-8 bytes of all texts, to within a document per repetition.
    alike : float
        Share of the documents of later repetitions whose texts stay copies, about; the others end with a word of their own.
    shard_mb : float
        Text of a shard, about.
    """
    originals = [json.loads(line) for line in original_lines(default_origin())]
    originals = list(_first(originals, megabytes / MIN_REPETITIONS))
    written = 0.0
    for repetition in itertools.count():
        if written >= megabytes:
            return written
        documents = [
            _repeated(document, repetition, alike) for document in _first(originals, megabytes - written)
        ]
        for number, shard in enumerate(_shards(documents, shard_mb)):
            data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in shard).encode()
            path = folder / f"repetition-{repetition:03d}" / f"part-{number:05d}.jsonl.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(data, 6, mtime=0))
        written += sum(map(_text_mb, documents))
    raise AssertionError  # pragma: no cover


def _repeated(document: dict[str, Any], repetition: int, alike: float) -> dict[str, Any]:
    identity, text = f"{document['id']}-{repetition}", document["text"]
    is_copy = not repetition or zlib.crc32(identity.encode()) < alike * (1 << 32)
    return {**document, "id": identity, "text": text if is_copy else f"{text} {identity}"}


def _text_mb(document: dict[str, Any]) -> float:
    return len(document["text"].encode()) / 1e6


def _first(documents: Sequence[dict[str, Any]], megabytes: float) -> Iterator[dict[str, Any]]:
    """Yield documents up to so many MB of text."""
    text = 0.0
    for document in documents:
        if text >= megabytes:
            return
        yield document
        text += _text_mb(document)


def _shards(documents: Sequence[dict[str, Any]], shard_mb: float) -> list[list[dict[str, Any]]]:
    """Cut documents into shards of nearly equal text, two at least."""
    total = sum(map(_text_mb, documents))
    most = total / max(2, round(total / shard_mb))
    shards: list[list[dict[str, Any]]] = [[]]
    text = 0.0
    for document in documents:
        if text >= most:
            shards.append([])
            text = 0.0
        shards[-1].append(document)
        text += _text_mb(document)
    return shards


def link_documents(documents: Path, root: Path) -> None:
    """Make a dataset of them, without another copy."""
    for path in sorted(documents.rglob("*.gz")):
        target = root / "v0" / "documents" / path.relative_to(documents)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)


def tokenizer_path(scratch: Path) -> str:
    """Return GPT-NeoX's tokenizer where the reference data is, else one trained on the originals."""
    path = shared_folder() / "tokenizers" / "neox-encoder.json"
    if path.exists():
        return str(path)
    from dolma_dask.testing.tokenizer import train_tokenizer

    path = scratch / "tokenizer.json"
    texts = (json.loads(line)["text"] for line in original_lines(default_origin()))
    train_tokenizer(_until(texts, 2_000_000), path)
    return str(path)


def _until(texts: Iterator[str], characters: int) -> Iterator[str]:
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return
