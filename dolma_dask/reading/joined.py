"""Small shards read as one: their documents in one block, with what is requested beside them; see `dolma_dask.io.joined`.

Reading a shard costs some hundred calls, whatever its size. Here the lines of many files go through them together; what stays for each file is that it is
opened, inflated and hashed. Only what is plain is read so: attributes whose records name the very bytes of both files, and rows without any fault.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from dolma_dask.formats import layout
from dolma_dask.formats.digests import digests_of_parts
from dolma_dask.formats.json.attributes import guess_form
from dolma_dask.formats.levels import kinds_to_read
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeBlock, AttributeFile
from dolma_dask.io.joined import Joined, NotJoinedError, read_joined_lines
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES, LineBlock
from dolma_dask.reading.follower import first_difference, named
from dolma_dask.reading.reader import IDENTITY, AlignedReader, AlignedShard
from dolma_dask.reading.sets import AttributeSource
from dolma_dask.sinks.sink import ShardFacts


def is_joinable(shard: AlignedShard) -> bool:
    """Tell whether a shard may be read together with others; on a store requests take the time, and several at once are faster."""
    is_whole = shard.range is None and not shard.digests and not (shard.sources and shard.default_source)
    paths = (shard.shard.path, *(source.info.path for source in shard.sources))
    return (
        files.is_local(shard.root) and is_whole and all(layout.format_of(path) != "parquet" for path in paths)
    )


def read_joined_documents(
    shards: Sequence[AlignedShard], columns: frozenset[str], policy: RecordPolicy, facts: Sequence[ShardFacts]
) -> Joined[Block]:
    """Return the rows of small shards with further document `columns`, with all facts about each as `AlignedShard.read` tells them."""
    wanted = [
        replace(shard, documents=(*shard.documents, *sorted(columns - {*shard.documents})))
        for shard in shards
    ]
    joined, inputs = read_joined(wanted, policy.max_record_bytes)
    digests = digests_of_parts(joined.rows.batch, joined.cuts)
    rows = np.diff(joined.cuts).tolist()
    for shard, fact, read, digest, count in zip(wanted, facts, inputs, digests, rows, strict=True):
        fact.inputs, fact.reads = read, shard.depends_on
        fact.ids_digest, fact.content_digest = digest
        fact.counts = {"documents_in": count, "bad_records": 0}
    return joined


def read_joined(
    shards: Sequence[AlignedShard], max_record_bytes: int
) -> tuple[Joined[Block], list[tuple[InputRecord, ...]]]:
    """Read small shards of one dataset as one block; return it with the files of each shard as they were read.

    Raises `NotJoinedError`, and whatever the reader of a shard raises: each has to be read by itself.
    """
    first = shards[0]
    if any(_what_is_read(shard) != _what_is_read(first) for shard in shards):
        raise NotJoinedError("other columns are read of some shards")
    reader = first.open(max_record_bytes=max_record_bytes)
    columns = dict.fromkeys((*(IDENTITY if first.sources else ()), *reader.requested))
    paths = [shard.shard.document for shard in shards]
    lines, documents = read_joined_lines(first.root, paths)
    block = reader.documents(tuple(columns)).rows_of(lines.rows)
    if block.bad:
        raise NotJoinedError("some rows cannot be read")
    taken, inputs = [reader.fields_of(block)], [documents]
    for number in range(len(first.sources)):
        sources = [shard.sources[number] for shard in shards]
        rows, read = _read_attributes(sources, reader, Joined(block, lines.cuts), documents)
        taken.append(named(sources[0], rows.columns))
        inputs.append(read)
    return Joined(reader.put_together(block, taken), lines.cuts), list(zip(*inputs, strict=True))


def _read_attributes(
    sources: Sequence[AttributeSource],
    reader: AlignedReader,
    documents: Joined[Block],
    read: Sequence[InputRecord],
) -> tuple[AttributeBlock, list[InputRecord]]:
    """Read the files of an attribute set beside documents that were `read` as one; return their rows, and the files as they were read."""
    shard, first = reader.work, sources[0]
    lines, inputs = read_joined_lines(shard.root, [source.info.path for source in sources])
    if not np.array_equal(lines.cuts, documents.cuts) or not all(map(_proves, sources, inputs, read)):
        raise NotJoinedError("no record proves that the attributes belong to the documents")
    file = AttributeFile(
        files.join(shard.root, first.info.path),
        kinds_to_read(first.kinds, first.levels),
        with_objects=first.with_objects,
        exact=shard.exact,
        ids_as_text=shard.shard.ids_as_text,
        max_record_bytes=max(reader.max_record_bytes, MAX_RECORD_BYTES),
    )
    form, *others = {guess_form(_lines_of(lines.rows, part)) for part in lines.parts}
    if others:
        raise NotJoinedError("attributes are written in several forms")
    rows = file.rows_of(lines.rows, form)
    ids, names = (documents.rows.batch.column(name) for name in IDENTITY)
    if first_difference(ids, names, rows)[0] >= 0:
        raise NotJoinedError("attributes are of other documents")
    return rows, inputs


def _what_is_read(shard: AlignedShard) -> tuple[object, ...]:
    """Return what shards must have in common."""
    same = replace(shard, shard=replace(shard.shard, path="", bytes=0, stamp=""), sources=())
    each = [
        (source.name, source.kinds, source.prefix, source.with_objects, source.keys, source.levels)
        for source in shard.sources
    ]
    return same, each


def _proves(source: AttributeSource, attributes: InputRecord, documents: InputRecord) -> bool:
    """Tell whether the record of an attribute file names these very bytes of it and of its documents."""
    proof = source.proof
    if proof is None or not proof.ids_digest or proof.documents is None:
        return False
    return (proof.file.checksum, proof.documents.checksum) == (attributes.checksum, documents.checksum)


def _lines_of(lines: LineBlock, rows: slice) -> LineBlock:
    return LineBlock(lines.data, lines.starts[rows.start : rows.stop + 1], rows.start, 0)
