"""Options for records that cannot be read, and what a run says of them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from dolma_dask.display import counted
from dolma_dask.formats.findings import NAMED, SHOWN, WORDS
from dolma_dask.io.quarantine import MAX_BAD_FRACTION, NAMED_MEMBERS, OnBadRecord, RecordPolicy
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Record
from dolma_dask.options.base import BAD, Opt
from dolma_dask.options.groups import ShardOptions


@dataclass(frozen=True, kw_only=True)
class RecordOptions(ShardOptions):
    """`ShardOptions`, and what happens to records that cannot be read."""

    group = BAD
    unrecorded = frozenset({"on_bad_record", "max_bad_fraction", "max_record_bytes"})

    on_bad_record: Annotated[
        OnBadRecord,
        Opt(
            "Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes."
        ),
    ] = "fail"
    max_bad_fraction: Annotated[
        float,
        Opt(
            "Share of rows that may be quarantined; with more of them the exit status is 1.",
            min=0,
            max=1,
            expected="a share of rows, from 0 to 1 (0.01 is one in a hundred)",
        ),
    ] = MAX_BAD_FRACTION
    max_record_bytes: Annotated[
        int,
        Opt(
            "Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the memory of a worker: up to 20 times as much for one record.",
            min=1,
            expected="a whole number of bytes, 1 or more",
        ),
    ] = MAX_RECORD_BYTES

    @property
    def policy(self) -> RecordPolicy:
        """The same as readers and the quarantine take it."""
        return RecordPolicy(self.on_bad_record, self.max_bad_fraction, self.max_record_bytes)


def budget(policy: RecordPolicy) -> float:
    """Return the share of bad rows that a run may end with."""
    return policy.max_bad_fraction if policy.on_bad_record == "quarantine" else 0.0


def skipped_notes(records: Iterable[Record]) -> Iterator[str]:
    """Name members of archives that hold no records; `records` know their number and the first names."""
    known = [record for record in records if "skipped_members" in record.info]
    names = [name for record in known for name in record.info["skipped_members"]]
    count = int(sum(record.counts["skipped_members"] for record in known))
    if count:
        more = f" and {count - NAMED_MEMBERS:,} more" if count > NAMED_MEMBERS else ""
        yield f"{counted(count, 'member')} of archives skipped, no file of records: {', '.join(names[:NAMED_MEMBERS])}{more}"


def finding_notes(records: Iterable[Record]) -> Iterator[str]:
    """Say how many documents of each kind of findings there are, and name the first; `records` know their number and places."""
    known = [record for record in records if "findings" in record.info]
    for kind, words in WORDS.items():
        count = int(sum(record.counts.get(kind, 0) for record in known))
        places = first_findings(known).get("findings", {}).get(kind, ())[:SHOWN]
        if count:
            more = f" and {count - len(places):,} more" if count > len(places) else ""
            shown = ", ".join(f"{shard} row {row} ({what})" for shard, row, what in places)
            yield f"{counted(count, 'document')} {words if count > 1 else _of_one(words)}: {shown}{more}"


_OF_ONE = {"have": "has", "are": "is", "lack": "lacks", "spell": "spells"}


def _of_one(words: str) -> str:
    """Return what several documents do as what one does; behind a colon stands advice."""
    done, mark, advice = words.partition(":")
    return " ".join(_OF_ONE.get(word, word) for word in done.split(" ")) + mark + advice


def first_findings(records: Iterable[Record]) -> dict[str, Any]:
    """Return the first places of each kind of findings in some records, in the form that one record has them in."""
    places: defaultdict[str, list[Any]] = defaultdict(list)
    for record in records:
        for kind, found in record.info.get("findings", {}).items():
            places[kind] += found[: NAMED - len(places[kind])]
    return {"findings": dict(places)} if places else {}
