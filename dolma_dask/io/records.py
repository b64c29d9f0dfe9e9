"""Blocks of rows, the bad records among them, and what is remembered of the files read and written.

A row is an input line. A line that cannot be read is still a row: it is null in every column and stands in ``bad``, so
that side files keep lining up with it.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import byte_size
from dolma_dask.errors import BadRecordError

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Number of rows or bytes; a record with another is damaged."""

QUARANTINE_HEAD = 64 * 1024
"""Bytes of an oversized record that are kept for the quarantine file."""

TOO_LARGE = "too_large"
"""Reason of a record that was not read because it is longer than allowed."""

MEMORY_TIMES = 20
"""Memory that a worker takes for a record of prose, in bytes for each byte of it, where most is done with it: all built-in taggers in one pass. By itself each takes 12; `benchmarks/LOG.md`."""

OF_FUNCTIONS = ("function_failed", "wrong_document")
"""Reasons of a record of which a function of the user makes no document."""

TAGGER_FAILED = "tagger_failed"
"""Reason of a document that a tagger could not do."""

SPECIAL_TOKENS = "special_tokens"
"""Reason of a document that spells special tokens of the tokenizer out, where such are refused."""

UNUSABLE_RECORD = "unusable_record"
"""Reason of a record without the texts that a mode of `hdf5` reads."""


def too_large(found: int, max_record_bytes: int) -> str:
    """Return what was expected instead of a record of `found` bytes."""
    memory = byte_size(MEMORY_TIMES * found)
    return f"at most {max_record_bytes:,} bytes (max_record_bytes), found {found:,}, for which a worker may need {memory}; raise the limit or drop the record"


class BadRecord(Struct, frozen=True):
    """One line that is not a valid record."""

    url: str  # file it stands in
    row: int  # 0-based line number
    byte_offset: int  # where the line starts, in bytes of decompressed data; -1 if nobody knows any more
    # ``blank_line``, ``invalid_utf8``, ``nul_byte``, ``invalid_json``, ``not_an_object``, ``missing_field``, ``wrong_type``,
    # ``too_large``, ``wrong_encoding``, ``damaged_record``, ``function_failed``, ``wrong_document``, ``special_tokens``, ``tagger_failed`` or
    # ``unusable_record``
    reason: str
    expected: str  # what should have been there
    raw: bytes  # the line without its newline; only its head when it is ``too_large``
    advice: str = ""  # what makes a record of it, for people: in no file

    def __str__(self) -> str:
        place = f", byte {self.byte_offset}" if self.byte_offset >= 0 else ""
        return f"{self.url}, row {self.row}{place}: {self.reason.replace('_', ' ')}; expected {self.expected}{self.advice}"

    def error(self, advice: str) -> BadRecordError:
        """Return it as an error that says what to do next."""
        return BadRecordError(
            f"{self}. {advice}", url=self.url, row=self.row, byte_offset=self.byte_offset, reason=self.reason
        )

    def to_json(self) -> dict[str, object]:
        """Return the line of the quarantine file as a dict."""
        return {
            "url": self.url,
            "row": self.row,
            "byte_offset": self.byte_offset,
            "reason": self.reason,
            "expected": self.expected,
            "raw_base64": base64.b64encode(self.raw).decode("ascii"),
        }


class Block(Struct, frozen=True):
    """Consecutive rows of one file."""

    batch: pa.RecordBatch  # one row per line; bad rows are null in every column
    first_row: int  # row number in the file of the first row of `batch`
    bad: tuple[BadRecord, ...] = ()  # the unreadable rows of this block, in order
    # members of an archive before this block that hold no records, each with the reason
    skipped: tuple[str, ...] = ()
    # encodings other than UTF-8 of the raw files whose rows begin in this block, one for each file
    encodings: tuple[str, ...] = ()
    # records of an archive that are no documents, and no rows: by what they are, and how many
    passed: tuple[tuple[str, int], ...] = ()

    @property
    def num_rows(self) -> int:
        """Number of rows, unreadable ones included."""
        return int(self.batch.num_rows)

    @property
    def errors(self) -> dict[int, str]:
        """Reason why rows could not be read, by their index in the batch."""
        return {
            record.row - self.first_row: f"{record.reason}: expected {record.expected}" for record in self.bad
        }


class InputRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An input file as it was read.

    ``path`` is relative to the root of its dataset; ``checksum`` is the xxh3-128 of the stored bytes; ``window_bytes`` the memory that a zstd file with a
    long window takes, 0 for all others.
    """

    path: str
    bytes: Count
    stamp: str
    checksum: str
    window_bytes: int = 0


class RuleCount(msgspec.Struct, frozen=True):
    """Documents for which a part of a `where` rule holds, or that a filter matches; `rule` as it was written, with names in full."""

    kind: Literal["where", "include", "exclude"]
    rule: str
    matched: Count = 0
    short: str = ""  # what people are shown; empty: the rule
    missing: Count = 0  # documents that lack a value which a part compares

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.kind} {self.short or self.rule}"


def sum_counts(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of counts by name, whole numbers as integers: journals do not tell them from others."""
    sums: dict[str, float] = {}
    for counts in each:
        for name, count in counts.items():
            sums[name] = sums.get(name, 0) + count
    return {name: int(count) if count == count // 1 else count for name, count in sums.items()}


def merge_rules(each: Iterable[Sequence[RuleCount]]) -> tuple[RuleCount, ...]:
    """Return the sums over shards, each rule once."""
    sums: dict[RuleCount, tuple[int, int]] = {}
    for rule in (rule for rules in each for rule in rules):
        one = replace(rule, matched=0, missing=0)
        matched, missing = sums.get(one, (0, 0))
        sums[one] = matched + rule.matched, missing + rule.missing
    return tuple(replace(rule, matched=matched, missing=missing) for rule, (matched, missing) in sums.items())


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An output file.

    ``path`` is relative to the output root; ``members`` are (stored offset, first row, decompressed offset) of its gzip members
    or zstd frames; ``rows`` counts its rows. ``stamp`` is the time stamp or tag of a file of documents or attributes when it appeared: while it has that, readers
    believe the record without reading.
    """

    path: str
    bytes: Count
    checksum: str
    rows: Count = 0
    members: tuple[tuple[Count, Count, Count], ...] = ()
    stamp: str = ""
