"""Signatures of documents that come from another dataset, found there by id: after a shuffle, a downsample or a new cut into shards none is made of a text again.

The signatures of the other dataset and the ids of this one meet in an exchange. Its key is a hash of source, id and bytes of the text, so that a text of another
length is not taken for the one that was signed; a few documents of each block are signed and compared, since other texts of the same length would
not show. A record brings the values along: 4 bytes for each, 536 bytes at 128 values. It costs about as much as to sign the texts.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Input, Step, Task, WorkDir, grouped
from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.exchange.buckets import of_shards
from dolma_dask.exchange.contract import Emitted, Records, locations, to_records, to_words, word_count
from dolma_dask.exchange.flag_rows import FlagRows, ShardKeys, document_rows
from dolma_dask.exchange.flags import FoundRows, ShardCursor
from dolma_dask.exchange.job import GROUP_BYTES, GROUP_SHARDS
from dolma_dask.exchange.passes import by_shard, reduce, scatter
from dolma_dask.exchange.staged import ShardRecords
from dolma_dask.formats import layout
from dolma_dask.formats.digests import keys128, word_keys
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, canonical
from dolma_dask.minhash.schemes import ABSENT, MinHash, Signatures
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text.kernels import Bools, Words
from dolma_dask.verbs.dedupe.fuzzy.signatures import (
    FOLDER,
    VERB,
    DocumentSigner,
    decoded,
    folder_of,
    values_of,
)

CHECKED = 8
"""Documents of a block (4 MiB) whose text is signed, to be compared with the signature that was found."""

_KEY = ("hi", "lo", "location")
_COLUMNS = ["id", "source", "bytes", "kind", "signature"]


class CarriedSignatures(Struct, frozen=True):
    """Files of signatures of another dataset."""

    root: str
    minhash: MinHash
    records: tuple[Record, ...]  # of the files
    is_published: bool  # taken from published tables, so that none can be made of a text

    @property
    def checksums(self) -> list[str]:
        """Checksums of the files."""
        return [record.files[0].checksum for record in self.records]

    def tasks(self) -> list[Task]:
        """Return the tasks that read the files."""
        found = []
        for record in self.records:
            file, url = record.files[0], files.join(self.root, record.files[0].path)
            info = files.stat(url)
            if info is None or info.bytes != file.bytes:
                raise UsageError(
                    f"{url} is not the file of {file.bytes:,} bytes that dedupe has written; expected signatures as they were made. Run dedupe on {self.root} "
                    "again, or leave `signatures` out."
                )
            read = InputRecord(url, file.bytes, info.stamp, file.checksum)
            found.append(
                Task(
                    f"signatures {file.path}", (), (Input(url, FileInfo(url, file.bytes, info.stamp)),), read
                )
            )
        return found


def find_carried(url: str, minhash: MinHash) -> CarriedSignatures | None:
    """Find the signatures with these parameters in the dataset at `url`; None if it is a folder of something else.

    Raises `UsageError`: it has signatures with other parameters only.
    """
    root = layout.dataset_root(files.normalize(url))
    known = Journal(root, VERB).records
    for is_published in (False, True):
        folder = folder_of(minhash, published=is_published)
        found = tuple(
            record
            for unit, record in sorted(known.items())
            if unit.startswith(f"{folder}/") and not record.stale
        )
        if found:
            return CarriedSignatures(root, minhash, found, is_published)
    if known:
        others = ", ".join(sorted({unit.split("/")[1] for unit in known}))
        raise UsageError(
            f"signatures={url!r} has none with the parameters {minhash.label}; expected some in {root}/{FOLDER}. There are: {others}."
        )
    return None


def _dtype(names: Iterable[str], num_perm: int) -> np.dtype[Any]:
    values = (f"values{number}" for number in range(-(-num_perm // 2)))
    return np.dtype([(name, "<u8") for name in (*names, "kind", *values)])


class CarriedEmitter(Struct, frozen=True):
    """Emits signatures with location 0, and documents with their own and nothing else; see `dolma_dask.exchange.Emitter`."""

    minhash: MinHash
    policy: RecordPolicy

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        return _dtype(_KEY, self.minhash.num_perm)

    @property
    def _payload_words(self) -> int:
        return word_count(self.dtype) - len(_KEY)

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read a file of signatures (``task.work`` is its `InputRecord`), or the shards of a task (a tuple of `ShardKeys`)."""
        if isinstance(task.work, InputRecord):
            return Emitted((task.work,), sum(self._give(out, *part) for part in self._signed(task.work.path)))
        rows, inputs = 0, list[InputRecord]()
        for shard in task.work:
            facts = ShardFacts(shard.name)
            rows += sum(self._give(out, *part) for part in self._documents(shard, facts))
            inputs += facts.inputs
        return Emitted(tuple(inputs), rows)

    @contextmanager
    def _intact(self, url: str) -> Iterator[None]:
        try:
            yield
        except (CorruptFileError, pa.ArrowException, LookupError, OSError) as error:
            if getattr(error, "errno", None):
                raise
            raise CorruptFileError(
                f"{url} is damaged: {error}; expected signatures as dedupe has written them. Remove it and run dedupe on its dataset again, or leave `signatures` out.",
                url=url,
            ) from error

    def _check_parameters(self, url: str, metadata: Mapping[bytes, bytes]) -> None:
        """Refuse signatures of another release, whose values may be others for the same parameters."""
        if metadata.get(b"minhash") != canonical(self.minhash.params()).encode():
            raise UsageError(
                f"{url} has signatures of another release; expected those of this one. Run dedupe on its dataset again, or leave `signatures` out."
            )

    def _signed(self, url: str) -> Iterator[tuple[Words, Words]]:
        with self._intact(url), open_parquet(url) as file:
            self._check_parameters(url, file.schema_arrow.metadata or {})
            for batch in decoded(file, _COLUMNS):
                ids, source, sizes, kinds, signatures = batch.columns
                payload = np.zeros((len(ids), self._payload_words), np.uint64)
                payload[:, 0] = np.asarray(kinds)
                values, valid = values_of(signatures, self.minhash.num_perm)
                payload[:, 1:].view(np.uint32)[valid, : self.minhash.num_perm] = values[valid]
                yield _keys(ids, source, np.asarray(sizes), np.zeros(len(ids), np.uint64)), payload

    def _documents(self, shard: ShardKeys, facts: ShardFacts) -> Iterator[tuple[Words, Words]]:
        for rows, _ in document_rows(shard.work, self.policy, Quarantine(self.policy), facts):
            own = locations(shard.number, rows.first, len(rows))
            payload = np.zeros((len(rows), self._payload_words), np.uint64)
            yield _keys(rows.ids, rows.sources, rows.sizes, own), payload

    def _give(self, out: Callable[[Records], None], keys: Words, payload: Words) -> int:
        """Give out the rows that could be read, and return how many rows there are."""
        out(to_records(np.concatenate([keys, payload], axis=1)[keys[:, 0] != 0], self.dtype))
        return len(keys)


def _keys(ids: pa.Array, source: pa.Array, sizes: npt.NDArray[np.int64], location: Words) -> Words:
    """Return the first three words of records (n, 3); 0 in the first for a row without an id, which could not be read."""
    high, low = word_keys(*keys128(source, ids), sizes.astype(np.uint64))
    high = np.where(np.asarray(ids.is_valid()), np.maximum(high, 1), 0)
    return np.stack([high, low, location], axis=1)


class CarriedReducer(Struct, frozen=True):
    """Gives each document the signature of its key; none where documents of one key have several. See `dolma_dask.exchange.Reducer`."""

    num_perm: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records that it gives out."""
        return _dtype(("location",), self.num_perm)

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the signatures of a range, by location; returns how many they are."""
        held, count = None, 0
        for run in runs:
            words = to_words(run, run.dtype)
            words = words if held is None else np.concatenate([held, words])
            documents, first, held = _matched(words)
            given = np.concatenate([words[documents, 2:3], words[first, 3:]], axis=1)
            out(to_records(given, self.dtype))
            count += len(given)
        return {"found": count}


def _matched(words: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Words | None]:
    """Return the rows of documents that have a signature, the rows of these, and the signatures of the last key, which may go on."""
    is_start = np.ones(len(words), np.bool_)
    is_start[1:] = (words[1:, :2] != words[:-1, :2]).any(axis=1)
    starts = np.flatnonzero(is_start)
    first = np.repeat(starts, np.diff([*starts, len(words)]))
    is_signature: Bools = words[:, 2] == 0
    again = np.flatnonzero(is_signature & ~is_start)
    other = again[(words[again, 3:] != words[first[again], 3:]).any(axis=1)]
    is_one = np.ones(len(words), np.bool_)
    is_one[first[other]] = False
    documents = np.flatnonzero(~is_signature & is_signature[first] & is_one[first])
    last = starts[-1]
    held = [last, *other[other > last][:1]] if is_signature[last] else []
    return documents, first[documents], words[held].copy() if held else None


class CarriedSigner(DocumentSigner, frozen=True, kw_only=True):
    """Documents of a shard with the signatures that were found."""

    found: ShardRecords
    number: int  # of the shard among them
    is_published: bool  # others have none; else they are made of the texts

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[tuple[FlagRows, Signatures]]:
        """Yield rows with their signatures, and count those that were found."""
        cursor, carried = ShardCursor(self.found, self.number), 0
        for rows, batch in document_rows(self.documents, policy, quarantine, facts):
            beside = cursor.beside(rows)
            carried += len(beside.at)
            yield rows, self._signed(beside, batch)
        facts.counts = {**facts.counts, "signatures_carried": carried}

    def _signed(self, beside: FoundRows, batch: pa.RecordBatch) -> Signatures:
        count, num_perm = len(beside.rows), self.minhash.num_perm
        values, kinds = np.zeros((count, num_perm), np.uint32), np.full(count, ABSENT, np.uint8)
        if beside.records is not None:
            words = to_words(beside.records, beside.records.dtype)
            kinds[beside.at] = words[:, 1]
            values[beside.at] = np.ascontiguousarray(words[:, 2:]).view(np.uint32)[:, :num_perm]
        if self.is_published:
            return Signatures(values, kinds)
        checked = beside.at[:: -(-len(beside.at) // CHECKED) or 1]
        left = np.concatenate([checked, np.flatnonzero(~beside.mask)])
        made = self._made(batch.take(pa.array(left)))
        own = slice(len(checked))
        has_values = self.minhash.has_signature(kinds[checked])
        is_other = (made.values[own] != values[checked]).any(axis=1) & has_values
        is_other |= made.kinds[own] != kinds[checked]
        if is_other.any():
            identity = beside.rows.ids[int(checked[int(is_other.argmax())])]
            raise DataError(
                f"documents/{self.name}: the text of {identity} is another one than was signed, though as long; expected documents that came unchanged from the "
                "dataset in `signatures`. Leave it out: signatures are made of the texts then."
            )
        values[left], kinds[left] = made.values, made.kinds
        return Signatures(values, kinds)


def found_elsewhere(
    work: WorkDir, carried: CarriedSignatures, shards: Sequence[ShardKeys], policy: RecordPolicy, name: str
) -> Generator[Step, Any, ShardRecords]:
    """Return the signatures of the documents of shards, by their numbers from 1 on; `name` tells the passes of several datasets apart."""
    groups = grouped(shards, lambda one: one.work.shard.bytes, GROUP_BYTES, GROUP_SHARDS)
    tasks = [*carried.tasks(), *map(Task.of, groups)]
    num_perm = carried.minhash.num_perm
    keys = yield from scatter(work, CarriedEmitter(carried.minhash, policy), tasks, name=f"carried-{name}")
    cut = of_shards(max((one.number for one in shards), default=0) + 1)
    reducer = CarriedReducer(num_perm)
    reduced = yield from reduce(work, reducer, keys.shared, name=f"found-{name}", cut=cut)
    assert reduced.staged is not None, "the reducer gives out records"
    return (yield from by_shard(work, reduced.staged, name=f"carried-shards-{name}"))
