"""Records of finished units and of runs, the keys of units, and whether what a record names is still there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import xxhash
from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import Count, FileRecord, InputRecord, RuleCount

if TYPE_CHECKING:
    from dolma_dask.rules.tally import Tally

FORMAT = 2
"""Format of records; raised when their fields change their meaning. Records of another format are never believed."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
"""Time since 1970, or how long something took; larger numbers are no time that can be shown."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="format", tag=FORMAT, gc=False):
    """One finished unit of work."""

    unit: str  # name of the unit: the path of its main output, relative to the output root
    shard: str  # the shard it was made from, relative to ``documents/`` of its dataset
    key: str  # digest of parameters and versions (`work_key`)
    # what was read and written
    inputs: tuple[InputRecord, ...] = ()
    files: tuple[FileRecord, ...] = ()
    rows: Count = 0  # rows of the input
    # xxh3-128 over (source, id) and (source, id, text) of every row of the documents that the outputs line up with
    ids_digest: str = ""
    content_digest: str = ""
    # numbers for the summary and the report, such as documents and text bytes in and out
    counts: dict[str, float] = {}
    rules: tuple[RuleCount, ...] = ()  # documents for which each part of a rule holds
    # what the parts of a `where` rule drop by source, in the order of `rules` (`Tally.to_json`); None: not counted
    drops: dict[str, list[tuple[int, int]]] | None = None
    info: dict[str, Any] = {}  # what only this verb knows (tagger types, thresholds, histograms...)
    # wall seconds of the work; when it ended, in seconds since 1970
    seconds: Seconds = 0.0
    finished: Seconds = 0.0
    # a later run was about to make the unit again: the files may be those of that run, which was stopped before it could say so
    stale: bool = False

    def with_shared(self, kind: type["Record"], key: str, info: Any, finished: float) -> "Record":
        """Return it as another kind of record; what is given is what records share, or what tells the newest."""
        return kind(
            self.unit,
            self.shard,
            key,
            self.inputs,
            self.files,
            self.rows,
            self.ids_digest,
            self.content_digest,
            self.counts,
            self.rules,
            self.drops,
            info,
            self.seconds,
            finished,
            self.stale,
        )

    def forgotten(self) -> "Record":
        """Return the record that takes the place of this one when its files were removed since no run makes them any more: it has no key."""
        return Record(self.unit, self.shard, key="", finished=self.finished)

    @property
    def is_forgotten(self) -> bool:
        """True if nothing is to be made or missed of the unit."""
        return not (self.key or self.files or self.info)


def sum_drops(records: Sequence[Record]) -> "Tally | None":
    """Return what conditions drop in several shards; None where it was not counted, or not by the same rule."""
    rules = {tuple(rule.rule for rule in record.rules if rule.kind == "where") for record in records}
    if len(rules) != 1 or any(record.drops is None for record in records):
        return None
    from dolma_dask.rules.tally import Tally  # brings Arrow along, which most readers of journals do without

    found = Tally(len(rules.pop()))
    for record in records:
        found.add(Tally.from_json(found.conditions, record.drops or {}))
    return found


class Unit(Struct, frozen=True, gc=False):
    """Smallest thing that is finished or not: an output, known under a key."""

    name: str  # path of the main output relative to the output root
    key: str  # `work_key` of all that decides the output besides the input bytes


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="run"):
    """A run: its options, the folders or files it may replace, and how it ended.

    ``origin`` is the root of its input, relative to the output root where both are local. ``finished`` is 0 until the run has ended by
    itself; ``missing`` counts the units that it left undone; ``over_budget`` says how many bad records there are, if they are too many.
    """

    run: str
    verb: str
    params: dict[str, Any]
    writes: tuple[str, ...]
    started: Seconds
    version: str = ""
    origin: str = ""
    finished: Seconds = 0.0
    missing: Count = 0
    over_budget: str = ""
    cpu: Seconds = 0.0  # CPU-seconds of all processes until it ended; of a job, of the passes before it too

    @property
    def is_open(self) -> bool:
        """True if it was stopped, still goes on, left units undone or ended over its budget."""
        return bool(self.missing or not self.finished or self.over_budget)


_canonical = msgspec.json.Encoder(order="deterministic")
_as_given = msgspec.json.Encoder()


def encode(value: Any, *, is_canonical: bool = False) -> bytes:
    """Return JSON, with sorted keys if it is to be canonical, else in their order, in which people are shown counts; raises `UsageError`: a text in it is not UTF-8."""
    try:
        return (_canonical if is_canonical else _as_given).encode(value)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{error.object[:200]!r}: text that is not UTF-8; expected UTF-8, which journals and reports can write. "
            "Rename the folder or file, or give another text."
        ) from None


def canonical(params: Mapping[str, Any]) -> str:
    """Return the canonical JSON of parameters: sorted keys, no white space.

    Raises `UsageError`: a text in them is not UTF-8.
    """
    return encode(params, is_canonical=True).decode()


def work_key(verb: str, version: int, params: Mapping[str, Any]) -> str:
    """Return the digest under which finished work is known: of the verb, its version (raised when its output changes for the same
    parameters), and everything that decides the output besides the input bytes.
    """
    return xxhash.xxh3_128_hexdigest(canonical({"verb": verb, "version": version, "params": params}).encode())


def is_there(record: Record, listed: Mapping[str, FileInfo]) -> bool:
    """Tell whether the outputs of a record are among some files with the sizes that it names; quarantine files may be gone."""
    outputs = (file for file in record.files if not layout.is_set_aside(file.path))
    return not record.stale and all(
        file.path in listed and listed[file.path].bytes == file.bytes for file in outputs
    )


def is_same_file(record: InputRecord, url: str, info: FileInfo | None) -> bool:
    """Tell whether the file at `url` still holds the bytes that were read; `info` is what the listing says of it now, None if it is gone."""
    if info is None or info.bytes != record.bytes:
        return False
    if info.stamp and info.stamp == record.stamp:
        return True
    if not record.checksum:
        return False  # of a file that was read in parts nobody knows the bytes
    try:
        return files.checksum(url) == record.checksum
    except FileNotFoundError:
        return False
