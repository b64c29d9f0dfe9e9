"""The outcome of `block`: the number of listed documents, and the entries of the list that no document has."""

from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import asdict

from dolma_dask.display import listed
from dolma_dask.engine.fold import readable_rows
from dolma_dask.errors import DataError
from dolma_dask.formats import layout
from dolma_dask.formats.json.write import string_texts
from dolma_dask.io import files
from dolma_dask.io.id_lists import IdBlock, IdListFile, ListFormat, list_format
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.results.parts import Fact
from dolma_dask.results.summary import Summary
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import join_texts, string_parts

SHOWN = 20
"""Unmatched entries that a summary shows; the file has all."""

_EXAMPLES = 3
"""Entries, and documents, that an error shows."""

_LOOKED_AT = 32
"""Shards, about, that an error looks at for sources."""

_ROWS = 1000
"""Documents at the beginning of each."""

_SEPARATORS = {",": "a comma", ";": "a semicolon", "|": "a bar", " ": "a space"}
"""Characters that people put between source and id."""

_COUNTS = (
    "documents_in",
    "text_bytes",
    "listed",
    "text_bytes_listed",
    "bad_records",
)


class BlockSummary(Summary, frozen=True):
    """The outcome of `block`.

    Attributes
    ----------
    entries, repeated : int
        Entries of the list, and how many of them had stood there before; the latter is None until all shards are done.
    unmatched : int or None
        Different entries that no document has; None until all shards are done.
    examples : tuple of str
        The first of them: an id, or source, tab and id.
    unmatched_file : str
        Path of the file that has all of them, relative to the dataset; empty if there are none.
    """

    entries: int = 0
    repeated: int | None = None
    unmatched: int | None = None
    examples: tuple[str, ...] = ()
    unmatched_file: str = ""

    @property
    def matches_nothing(self) -> bool:
        """True if the list is empty, or it is known that no document has any of its entries."""
        return matches_nothing(self.entries, self.unmatched, self.repeated)

    def own_facts(self) -> Iterator[Fact]:
        yield Fact("entries in the list", self.entries, "integer")
        if self.repeated is not None:
            yield Fact("repeated", self.repeated, "integer")
        if self.unmatched is not None:
            yield Fact("matching nothing", self.unmatched, "integer")
        yield from (Fact("", repr(example)) for example in self.examples)
        if self.unmatched_file:
            yield Fact("all of them", self.unmatched_file)


def matches_nothing(entries: int, unmatched: int | None, repeated: int | None) -> bool:
    """Tell whether it is known that no entry of a list is that of a document."""
    return unmatched is not None and unmatched + (repeated or 0) == entries


def first_documents(shards: Iterator[AlignedShard]) -> pa.RecordBatch | None:
    """Return some documents that can be read, the first ones; None if there are none."""
    return next((rows for shard in shards for rows in readable_rows(shard) if rows.num_rows), None)


def summarize(summary: Summary, entries: int, info: dict[str, Any] | None) -> BlockSummary:
    """Return a summary with the facts of the list; `info` is that of the dataset-wide record, once all shards are done."""
    counts = {name: summary.counts[name] for name in _COUNTS if name in summary.counts}
    known = {**asdict(summary), "counts": counts}
    if info is None:
        return BlockSummary(**known, entries=entries)
    known["notes"] = (*summary.notes, *_ambiguous(*info.get("ambiguous", (0, ""))))
    return BlockSummary(
        **known,
        entries=entries,
        repeated=info["repeated"],
        unmatched=info["unmatched"],
        examples=tuple(info["examples"]),
        unmatched_file=info["file"],
    )


def _ambiguous(count: int, example: str) -> Iterator[str]:
    """Say that entries without a source flag documents of several sources."""
    if count:
        entries = (
            "1 entry without a source flags" if count == 1 else f"{count:,} entries without a source flag"
        )
        yield f"{entries} documents of several sources, first {example!r}; for those of one alone write source, tab and id"


def id_at(url: str, number: int) -> str:
    """Return the id of an entry of a list by its number."""
    for block in IdListFile(url):
        if number < len(block):
            return str(block.ids[number].as_py())
        number -= len(block)
    return ""


def refuse(summary: BlockSummary, url: str, shards: Sequence[AlignedShard]) -> None:
    """Refuse a list that matches nothing, beside documents that it could be of; where there are none at all, it is as it should be.

    Raises `DataError`.
    """
    beside = _documents_of(shards)
    if not beside:
        return
    documents = listed([f"{identity!r} of source {source!r}" for source, identity in _chosen(beside)])
    entries = listed([repr(entry) for entry in summary.examples[:_EXAMPLES]])
    found = (
        f"no document has any of its {summary.entries:,} entries, such as {entries}"
        if entries
        else "an empty list"
    )
    raise DataError(
        f"{url}: {found}; expected ids as the documents have them, such as {documents}, or source, tab and id."
        f"{_mistake(summary.examples, {source for source, _ in beside}, list_format(url))} Correct the list, or go on with it where it may match nothing: "
        "--allow-unmatched (allow_unmatched=True).",
        url=url,
        summary=summary,
    )


def _documents_of(shards: Sequence[AlignedShard]) -> list[tuple[str, str]]:
    """Return source and id of the first documents of some shards that lie apart: of as many sources as a short look finds."""
    step = max(len(shards) // _LOOKED_AT, 1)
    firsts = [first_documents(iter([shard])) for shard in shards[::step]]
    blocks = [rows for rows in firsts if rows is not None] or [first_documents(iter(shards))]
    return [
        identity
        for rows in blocks
        if rows is not None
        for identity in zip(
            *(rows.column(name).slice(0, _ROWS).to_pylist() for name in ("source", "id")), strict=True
        )
    ]


def _chosen(documents: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the documents that an error shows: the first of each source, then others."""
    by_source: dict[str, tuple[str, str]] = {}
    for document in documents:
        by_source.setdefault(document[0], document)
    return list(dict.fromkeys([*by_source.values(), *documents]))[:_EXAMPLES]


def _mistake(entries: Sequence[str], sources: Set[str], form: ListFormat) -> str:
    """Say what is wrong with the first entry whose parts are in another order, or divided by another character, than is read; nothing if none can be told."""
    own = {"csv": "a comma", "tsv": "a tab"}.get(form)
    wanted = f"a source, {own or 'a tab'} and an id"
    for entry in entries:
        source, tab, identity = entry.partition("\t")
        if tab and identity in sources and source not in sources:
            return f" Source and id look swapped in {entry!r}: expected the source first, as in {identity!r}, then the id {source!r}."
        for mark, name in _SEPARATORS.items():
            before, after = entry.partition(mark)[0].strip(), entry.rpartition(mark)[2].strip()
            if tab or mark not in entry or not sources & {before, after}:
                continue
            order = "source and id" if before in sources else "id and source"
            table = (
                ", or the same lines in a file whose name ends in .csv"
                if mark == "," and before in sources
                else ""
            )
            return f" {entry!r} looks like {order} with {name} between them: expected {wanted}{table}."
    return ""


def unmatched_path(name: str) -> str:
    """Return where the unmatched entries of a list are written, relative to the dataset: no tool looks for data there."""
    return f"{layout.QUARANTINE}/block/{name}.unmatched.jsonl"


def write_unmatched(
    root: str, name: str, url: str, numbers: Iterator[npt.NDArray[np.int64]]
) -> tuple[FileRecord | None, list[str]]:
    """Write the entries of these numbers, which come in order, as JSON lines that `block` reads again; return the file and the first entries."""
    target = files.join(root, unmatched_path(name))
    left = next(numbers, None)
    if left is None:
        files.remove(target)
        return None, []
    examples: list[str] = []
    first = rows = 0
    with publish(target) as out:
        for block in IdListFile(url):
            while left is not None:
                inside = left[: int(np.searchsorted(left, first + len(block)))] - first
                entries = block.take(inside)
                out.write(_lines(entries))
                examples += _as_listed(entries, SHOWN - len(examples))
                rows += len(entries)
                if len(inside) < len(left):
                    left = left[len(inside) :]
                    break
                left = next(numbers, None)
            first += len(block)
    return FileRecord(unmatched_path(name), out.bytes, out.checksum, rows), examples


def _lines(entries: IdBlock) -> pa.Buffer:
    """Return entries as JSON lines; a source that is any is left out."""
    named = join_texts(',"source":', string_texts(entries.sources))
    sources = pc.if_else(entries.sources.is_null(), pa.scalar("", pa.large_string()), named)
    numbers = pa.array(entries.lines).cast(pa.large_string())
    lines = join_texts('{"id":', string_texts(entries.ids), sources, ',"line":', numbers, "}\n")
    offsets, data = string_parts(lines)
    return pa.py_buffer(data[offsets[0] : offsets[-1]])


def _as_listed(entries: IdBlock, most: int) -> list[str]:
    """Return the first entries as a list has them."""
    ids, sources = (column.slice(0, most).to_pylist() for column in (entries.ids, entries.sources))
    return [
        identity if source is None else f"{source}\t{identity}"
        for identity, source in zip(ids, sources, strict=True)
    ]
