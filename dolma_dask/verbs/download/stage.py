"""The work of `download` on one object: fetched until it is all there, proved to be whole, and published; and the lists of those that are not there."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Literal

import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Task, Unit
from dolma_dask.errors import CorruptFileError, DataError
from dolma_dask.io import files
from dolma_dask.io.decompress import compression_of, read_pieces
from dolma_dask.io.objects import ObjectSource, Version, shown
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.partial import Partial, partial
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.io.stored import StoredFile
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.verbs.download.selection import Wanted

VERSION = 1
"""Raised whenever download writes other bytes for the same object."""

MAX_COPIES = 4
"""Times that an object is fetched whose bytes are not what its name says; two equal ones are enough to know that it is broken at its source."""

Handling = Literal["record", "fail"]

STATES = {
    "missing": "missing at the source",
    "broken": "broken at the source",
    "unsized": "fetched without proof that they are whole, since their servers tell no size and close the connection",
}
"""States of objects that are not there, or perhaps not whole: names of their lists, and what is said of them."""

LISTS = "_quarantine/download"
"""Folder of the lists of objects that are not there, or perhaps not whole."""


def key_of(url: str, stamp: str) -> str:
    """Return the key of an object: in the web its tag is all that tells it from the one before; elsewhere its bytes can be compared."""
    return work_key("download", VERSION, {"stamp": stamp} if files.is_web(url) else {})


class DownloadStage(Struct, frozen=True):
    """Fetches one object and publishes it."""

    target: str
    origin: str  # of the objects, seen from the target
    source: ObjectSource
    on_missing: Handling
    on_broken: Handling
    verb: str = "download"

    def is_trusted(self, record: Record) -> bool:
        """Tell whether a record is of this origin, and of nothing that is to fail."""
        failing = {"missing": self.on_missing == "fail", "broken": self.on_broken == "fail"}
        return record.info.get("origin") == self.origin and not any(map(failing.get, record.info))

    def run_shard(self, task: Task) -> list[Record]:
        """Fetch one object; see `dolma_dask.engine.Stage`."""
        wanted: Wanted = task.work
        unit = task.units[0]
        expected = {item.info.stamp for item in task.inputs} - {""}
        with partial(files.join(self.target, unit.name)) as part:
            if part.version and expected and part.version.stamp not in expected:
                part.discard()
            try:
                version, checksum = self._fetch_whole(wanted.url, part)
            except FileNotFoundError:
                part.discard()
                return [self._without(unit, wanted, "missing")]
            except CorruptFileError as error:
                if self.on_broken == "fail":
                    raise
                return [self._without(unit, wanted, "broken", str(error))]
            size = part.bytes
            info = self._described(wanted, part)
            part.publish()
        return [
            Record(
                unit=unit.name,
                shard=task.shard,
                key=key_of(wanted.url, version.stamp),
                inputs=(InputRecord(unit.name, size, version.stamp, checksum),),
                files=(FileRecord(unit.name, size, checksum),),
                counts={"files": 1, "bytes_out": size, **{state: 1 for state in STATES if state in info}},
                info=info,
            )
        ]

    def _described(self, wanted: Wanted, part: Partial) -> dict[str, str]:
        """Return what a record says of an object: its origin, the other host that has sent it, and whether nothing proves that it is whole.

        The end of a table proves that; gzip and zstd data may have been cut behind a member.
        """
        is_proved = part.is_proved or wanted.path.endswith(".parquet")
        info = {"origin": self.origin}
        if part.host:
            info["host"] = part.host
        if not is_proved:
            info["unsized"] = shown(wanted.url)
        return info

    def _fetch_whole(self, url: str, part: Partial) -> tuple[Version, str]:
        """Fetch an object into its partial file, and return its version and the checksum of its bytes.

        Raises `FileNotFoundError`: there is none. Raises `CorruptFileError`: it is broken at its source. Raises `StoreError`: see `ObjectSource.persistently`.
        """
        seen: set[str] = set()
        while True:
            part.receive(self.source, url)
            version = part.version or Version()
            checksum, damage = _proved(url, part)
            if not damage:
                return version, checksum
            part.discard()
            if checksum in seen or len(seen) + 1 == MAX_COPIES:
                raise CorruptFileError(
                    f"{shown(url)} is broken at its source: {damage} (fetched {len(seen) + 1} times); expected a whole file. Leave it out with --on-broken "
                    "record, and tell those who publish it.",
                    url=shown(url),
                )
            seen.add(checksum)

    def _without(self, unit: Unit, wanted: Wanted, state: str, reason: str = "") -> Record:
        """Return the record of an object that is left out."""
        url = shown(wanted.url)
        if state == "missing" and self.on_missing == "fail":
            raise DataError(
                f"{url}: there is no such object; expected all that are listed. Correct the list, or leave out what is missing with --on-missing record.",
                url=url,
            )
        info = {"origin": self.origin, state: url, **({"reason": reason} if reason else {})}
        return Record(
            unit=unit.name, shard=unit.name, key=key_of(wanted.url, ""), counts={state: 1}, info=info
        )


def _proved(url: str, part: Partial) -> tuple[str, str]:
    """Return the checksum of what was received, and how it is damaged, if it is."""
    damage = ""
    with closing(StoredFile(part.url)) as stored:
        try:
            _read_through(stored, shown(url))
        except (CorruptFileError, pa.ArrowException) as error:
            damage = str(error).replace(part.url, "").strip(": ").partition("; expected")[0]
        stored.hash_rest()
        return stored.checksum, damage


def _read_through(stored: StoredFile, name: str) -> None:
    """Read a file as far as its name says what it holds: gzip and zstd data to their ends, the footer of a table."""
    if name.endswith(".parquet"):
        with open_parquet(stored.url):
            return
    if compression := compression_of(name):
        for _ in read_pieces(stored, compression):
            pass


def left_out(records: Mapping[str, Record], state: str) -> list[str]:
    """Return the URLs of objects in one of the `STATES`."""
    return sorted(record.info[state] for record in records.values() if state in record.info)


def write_lists(target: str) -> None:
    """List the objects in each of the `STATES`, of all runs, one URL to a line: lists that `download` takes again."""
    records = Journal(target, "download").records
    for state in STATES:
        url = files.join(target, f"{LISTS}/{state}.txt")
        text = "".join(f"{line}\n" for line in left_out(records, state)).encode()
        if text == (files.read_bytes(url) if files.stat(url) else b""):
            continue
        if not text:
            files.remove(url)
            continue
        with publish(url) as out:
            out.write(text)


def sentences(target: str, records: Mapping[str, Record]) -> Iterator[str]:
    """Say how many objects are in each of the `STATES`, of which components, and where they are listed; and which other hosts have sent some."""
    for state, said in STATES.items():
        if urls := left_out(records, state):
            names = (name for name, record in records.items() if state in record.info)
            folders = Counter(name.split("/")[0] if "/" in name else "files" for name in names)
            parts = ", ".join(f"{count:,} of {folder}" for folder, count in sorted(folders.items()))
            yield (
                f"{len(urls):,} {said} ({parts}), first {urls[0]}; all are listed in {target}/{LISTS}/{state}.txt. --refresh looks for "
                "them again"
            )
    hosts = Counter(record.info["host"] for record in records.values() if "host" in record.info)
    if hosts:
        parts = ", ".join(f"{host} ({count:,})" for host, count in sorted(hosts.items()))
        yield f"sent by other hosts than the URLs name, to which their servers redirect: {parts}"
