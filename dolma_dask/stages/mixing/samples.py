"""A look at the first rows of some files: which attributes documents themselves have, and which attributes fit no column."""

from collections.abc import Iterator, Sequence, Set
from itertools import pairwise

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.errors import DolmaDaskError
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import AttributeKind, sample_kinds
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.formats.layout import format_of
from dolma_dask.io import files
from dolma_dask.io.stream import StoredFile, compression_of, read_lines

SHARDS = 8
"""Files, evenly spread, that are looked into."""

ROWS = 1000
_SAMPLE_BYTES = 1 << 20


def own_attributes(dataset: Dataset) -> dict[str, AttributeKind]:
    """Return the attributes that stand in the documents themselves, as the first rows of some shards show them."""
    lines: list[bytes] = []
    for shard in _spread(dataset.shards):
        for line in _first_lines(dataset.url(layout.document_path(shard.path)), b'"attributes"'):
            raw = _member(line, "attributes")
            lines += [b'{"attributes":%b}' % raw] if raw and raw.startswith(b"{") else []
    return sample_kinds(lines, "nested")


def odd_keys(dataset: Dataset, names: Sequence[str], keys: Set[str]) -> dict[str, frozenset[str]]:
    """Return which of some keys, which no column holds, stand in attribute files all the same, and in the files of which sets.

    Their values are of several types, for example.
    """
    found: dict[str, set[str]] = {}
    for name in names if keys else ():
        for shard in _spread(dataset.shards):
            for line in _attribute_lines(dataset, name, shard, keys):
                for key in keys:
                    if name not in found.get(key, ()) and _has_value(line, key):
                        found.setdefault(key, set()).add(name)
    return {key: frozenset(sets) for key, sets in found.items()}


def _attribute_lines(dataset: Dataset, name: str, shard: Shard, keys: Set[str]) -> Iterator[bytes]:
    for path in layout.attribute_candidates(shard.path):
        url = dataset.url(f"{layout.ATTRIBUTES}/{name}/{path}")
        if files.stat(url) is not None:
            yield from _first_lines(url, *(key.encode() for key in keys))
            return


def _has_value(line: bytes, key: str) -> bool:
    raw = _member(line, "attributes")
    inside = raw if raw is not None and raw.startswith(b"{") else line
    return _member(inside, key) is not None


def _member(line: bytes, name: str) -> bytes | None:
    try:
        raw = parse_object(line).get(name, b"null")
    except LineError:
        return None
    return None if raw == b"null" else raw


def _spread(shards: Sequence[Shard]) -> Sequence[Shard]:
    return shards[:: max(1, len(shards) // SHARDS)][:SHARDS]


def _first_lines(url: str, *wanted: bytes) -> Iterator[bytes]:
    """Yield lines from the start of a file that hold one of the wanted words; what is wrong with the file, its reader says."""
    if format_of(url) == "parquet":
        return
    stored = StoredFile(url)
    try:
        block = next(read_lines(stored, compression_of(url), block_bytes=_SAMPLE_BYTES), None)
    except DolmaDaskError:
        return
    finally:
        stored.close()
    if block is None or block.oversize_bytes:
        return
    data = block.data.tobytes()
    if any(word in data for word in wanted):
        lines = (data[start:stop] for start, stop in pairwise(block.starts[: ROWS + 1].tolist()))
        yield from (line for line in lines if any(word in line for word in wanted))
