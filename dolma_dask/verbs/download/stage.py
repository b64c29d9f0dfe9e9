"""The work of `download` on one object, and what is left of those that are not there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dolma_dask.engine import Task, Unit
from dolma_dask.errors import CorruptFileError, DataError
from dolma_dask.io import files
from dolma_dask.io.objects import shown
from dolma_dask.io.partial import partial
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.verbs.download.fetching import Access, fetch_whole
from dolma_dask.verbs.download.selection import Wanted

VERSION = 1
"""Raised whenever download writes other bytes for the same object."""

Handling = Literal["record", "fail"]

LISTS = "_quarantine/download"
"""Folder of the lists of objects that were not fetched."""


def key_of(url: str, stamp: str) -> str:
    """Return the key of an object: in the web its tag is all that tells it from the one before; elsewhere its bytes can be compared."""
    return work_key("download", VERSION, {"stamp": stamp} if files.is_web(url) else {})


@dataclass(frozen=True)
class DownloadStage:
    """Fetches one object and publishes it."""

    target: str
    origin: str  # of the objects, seen from the target
    access: Access
    on_missing: Handling
    on_broken: Handling
    verb: str = "download"

    def run_shard(self, task: Task) -> list[Record]:
        """Fetch one object; see `dolma_dask.engine.Stage`."""
        wanted: Wanted = task.work
        unit = task.units[0]
        expected = {item.info.stamp for item in task.inputs} - {""}
        with partial(files.join(self.target, unit.name)) as part:
            if part.version and expected and part.version.stamp not in expected:
                part.discard()
            try:
                version, checksum = fetch_whole(self.access.source(wanted.url), wanted.url, part)
            except FileNotFoundError:
                part.discard()
                return [self._without(unit, wanted, "missing")]
            except CorruptFileError as error:
                if self.on_broken == "fail":
                    raise
                return [self._without(unit, wanted, "broken", str(error))]
            part.publish()
        size = version.bytes or 0
        return [
            Record(
                unit=unit.name,
                shard=task.shard,
                key=key_of(wanted.url, version.stamp),
                inputs=(InputRecord(unit.name, size, version.stamp, checksum),),
                files=(FileRecord(unit.name, size, checksum),),
                counts={"files": 1, "bytes_out": size},
                info={"origin": self.origin},
            )
        ]

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


def left_out(records: Mapping[str, Record], state: str) -> list[str]:
    """Return the URLs of objects that are ``missing`` or ``broken``."""
    return sorted(record.info[state] for record in records.values() if state in record.info)


def write_lists(target: str) -> None:
    """List the objects that were not fetched, of all runs, one URL to a line: lists that `download` takes again."""
    records = Journal(target, "download").records
    for state in ("missing", "broken"):
        url = files.join(target, f"{LISTS}/{state}.txt")
        text = "".join(f"{line}\n" for line in left_out(records, state)).encode()
        if text == _content(url):
            continue
        if not text:
            files.remove(url)
            continue
        with publish(url) as out:
            out.write(text)


def _content(url: str) -> bytes:
    """Return the content of a list; nothing if there is none."""
    try:
        return files.read_bytes(url)
    except FileNotFoundError:
        return b""


def sentence(target: str, records: Mapping[str, Record], state: str) -> Sequence[str]:
    """Say how many objects are ``missing`` or ``broken``, of which components, and where they are listed."""
    urls = left_out(records, state)
    if not urls:
        return ()
    components: dict[str, int] = {}
    for name, record in records.items():
        if state in record.info:
            folder = name.split("/")[0] if "/" in name else "files"
            components[folder] = components.get(folder, 0) + 1
    parts = ", ".join(f"{count:,} of {folder}" for folder, count in sorted(components.items()))
    return (
        f"{len(urls):,} {state} at the source ({parts}), first {urls[0]}; all are listed in {target}/{LISTS}/{state}.txt. --refresh looks for them again",
    )
