"""A dataset beside the raw files that it was made of: records that no document has, and documents that are no record, by their ids.

Memory: 16 bytes for each record and for each document.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted, listed
from dolma_dask.engine.fold import fold, shards_of
from dolma_dask.errors import DataError, SourceChangedError
from dolma_dask.formats import layout
from dolma_dask.options.groups import RunOptions
from dolma_dask.reading.columns import find_columns
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.text import compute as pc
from dolma_dask.verbs.validate.keys import Keys
from dolma_dask.verbs.validate.problems import KINDS, SHOWN, Problem, Problems
from dolma_dask.verbs.validate.raw import (
    FIELDS,
    RAW,
    RawFolder,
    RawSums,
    as_values,
    check_raw,
    id_keys,
    joined_keys,
    raw_ids,
)


@dataclass(frozen=True)
class CountDocuments:
    """Reads the ids of documents; see `dolma_dask.engine.fold.Fold`."""

    verb: ClassVar[str] = "validate"

    def start(self) -> RawSums:
        """Return the sums of no shards."""
        return RawSums()

    def count(self, shard: AlignedShard) -> RawSums:
        """Return the ids of one shard, in the order of its rows; the checks of shards report one that cannot be read to its end."""
        keys, cut = list[Keys](), 0
        try:
            keys.extend(id_keys(block.batch.column("id")) for block in shard.open())
        except SourceChangedError:
            raise
        except DataError:
            cut = 1
        return RawSums(keys=((shard.name, joined_keys(keys)),), cut=cut)


def compare(
    folder: RawFolder, dataset: Dataset, selected: Dataset, options: RunOptions
) -> tuple[Problems, list[str]]:
    """Compare selected documents with all raw files.

    Returns
    -------
    Problems
        Of the raw files, their records that are no document, and documents that are no raw record.
    list of str
        Notes on what could not be told.
    """
    sums, problems, _ = check_raw(folder, options)
    shards = shards_of(find_columns(selected, ["source"]))
    documents = fold(CountDocuments(), shards, options)
    raw_files = {work.name: work for work in folder.works()}
    by_name = {shard.name: shard for shard in shards}

    def ids_of_raw(name: str) -> Iterator[pa.Array]:
        return map(raw_ids, raw_files[name].read(Counter()))

    def ids_of_documents(name: str) -> Iterator[pa.Array]:
        return (block.batch.column("id") for block in by_name[name].open())

    unknown = _unread_documents(dataset, selected, documents.cut)
    if not unknown:
        _add_absent(problems, "lost_record", sums, documents, ids_of_raw, RAW)
    if not sums.cut:
        _add_absent(problems, "not_in_against", documents, sums, ids_of_documents, layout.DOCUMENTS)
    return problems, [*unknown, *_unread_records(sums.cut), *_no_common_ids(sums, documents, folder.id)]


def _unread_documents(dataset: Dataset, selected: Dataset, cut: int) -> list[str]:
    """Say why some documents are unknown, each of which might be a record that seems to be lost."""
    looked, total = len(selected.shards), len(dataset.shards)
    why = f"{looked:,} of {counted(total, 'file')} were read" if looked < total else ""
    why = why or (f"{counted(cut, 'file')} could not be read to the end" if cut else "")
    return [f"raw records were NOT looked for among the documents, since {why}"] if why else []


def _unread_records(cut: int) -> list[str]:
    why = f"{counted(cut, 'raw file')} could not be read to the end"
    return [f"documents were NOT looked for among the raw records, since {why}"] if cut else []


def _no_common_ids(raw: RawSums, documents: RawSums, field: str | None) -> list[str]:
    """Say which fields may hold the ids, where no document has that of a raw record."""
    ours, theirs = (as_values(joined_keys([one for _, one in sums.keys])) for sums in (documents, raw))
    if not len(ours) or not len(theirs) or pc.any(pc.is_in(ours, value_set=theirs)).as_py():
        return []
    of = f"the field {field}" if field else "the field id, else file and row"
    fields = listed(sorted(raw.fields, key=lambda name: (-raw.fields[name], name))[:FIELDS])
    return [
        f"no document has the id of a raw record, which is that of {of}; if another field holds it, name that as convert --id did: --raw-id FIELD. They have {fields}"
    ]


def _add_absent(
    problems: Problems,
    kind: str,
    sums: RawSums,
    known: RawSums,
    ids: Callable[[str], Iterator[pa.Array]],
    folder: str,
) -> None:
    """Add the rows whose keys are not among the `known` ones; only files with the first of them are read again, for their ids."""
    keys = joined_keys([one for _, one in sums.keys])
    there = as_values(joined_keys([one for _, one in known.keys]))
    absent = keys.any(axis=1) & ~np.asarray(pc.is_in(as_values(keys), value_set=there))
    expected = KINDS[kind] if folder == RAW else "a raw record of that id"
    start = 0
    for name, own in sums.keys:
        rows = np.flatnonzero(absent[start : start + len(own)])
        start += len(own)
        wanted = rows[: problems.keep].tolist() if problems.counts[kind] < problems.keep else []
        first = [
            Problem(f"{folder}/{name}", row, f"the id {identity[:SHOWN]!r}", expected)
            for row, identity in _rows(ids, name, wanted)
        ]
        problems.add_all(kind, first, len(rows))


def _rows(
    ids: Callable[[str], Iterator[pa.Array]], name: str, wanted: Sequence[int]
) -> Iterator[tuple[int, str]]:
    """Yield rows of a file with their ids; it is read no further than to the last of them, since it may be damaged behind."""
    at = 0
    for block in ids(name) if wanted else ():
        yield from ((row, block[row - at].as_py()) for row in wanted if at <= row < at + len(block))
        at += len(block)
        if at > wanted[-1]:
            return
