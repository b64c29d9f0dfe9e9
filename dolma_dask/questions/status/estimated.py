"""Estimates for the verbs of a dataset, kept as ``_journal/estimate.json``, beside their real cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dolma_dask.errors import StoreAccessError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.journal import Journal
from dolma_dask.results.table import Column

_PATH = f"{layout.JOURNAL}/estimate.json"


class Expected(msgspec.Struct, frozen=True, array_like=False):
    """Expected cost of a stage of a pipeline."""

    verb: str
    cpu: float  # CPU-seconds
    bytes: int  # stored bytes that it writes
    files: int
    made: float  # seconds since 1970
    pipeline: str  # its file


_PARTS = {"dedupe": ("signatures",)}
"""Journals that a verb keeps beside that of its name."""

_decoder = msgspec.json.Decoder(list[Expected])


def keep(expected: Mapping[str, Sequence[Expected]]) -> None:
    """Keep an estimate below the roots it speaks of; verbs that it does not speak of keep what was expected of them.

    A root that cannot be written is left out: nothing depends on it.
    """
    for root, stages in expected.items():
        verbs = {stage.verb for stage in stages}
        others = [stage for stage in read_expected(root) if stage.verb not in verbs]
        try:
            with publish(files.join(root, _PATH)) as out:
                out.write(msgspec.json.encode([*others, *stages]))
        except (OSError, StoreAccessError):
            continue


def read_expected(root: str) -> list[Expected]:
    """Return what was expected of the verbs of a root."""
    try:
        return _decoder.decode(files.read_bytes(files.join(root, _PATH)))
    except (FileNotFoundError, *NOT_JSON):
        return []


@dataclass(frozen=True)
class EstimateRow:
    """A verb as it was estimated and as it was, in all stages of a pipeline that write here."""

    verb: str
    # CPU-seconds, stored bytes and files: expected, and what is there; `cpu` is 0 if no run has ended since
    cpu_expected: float
    cpu: float
    bytes_expected: int
    bytes: int
    files_expected: int
    files: int


ESTIMATED = (
    Column("verb", "name"),
    Column("CPU estimated", "seconds", "cpu_expected"),
    Column("CPU", "seconds", lambda one: one.cpu or None),
    Column("output estimated", "size", "bytes_expected"),
    Column("output", "size", "bytes"),
    Column("files estimated", of="files_expected"),
    Column("files"),
)
"""Columns of what was estimated."""


def compare(root: str, journals: Sequence[Journal], listed: Mapping[str, FileInfo]) -> Iterator[EstimateRow]:
    """Yield each verb that was estimated and has run, with what its runs since then took and its files that are there."""
    known = {journal.verb: journal for journal in journals}
    stages: dict[str, list[Expected]] = {}
    for stage in read_expected(root):
        stages.setdefault(stage.verb, []).append(stage)
    for verb, mine in stages.items():
        journals_of = [known[name] for name in (verb, *_PARTS.get(verb, ())) if name in known]
        if not any(journal.records for journal in journals_of):
            continue
        runs = [run for journal in journals_of for run in journal.runs if run.started >= mine[0].made]
        made = [
            info.bytes
            for path, info in listed.items()
            if not path.startswith(layout.OF_RUNS) and any(journal.may_write(path) for journal in journals_of)
        ]
        yield EstimateRow(
            verb,
            sum(stage.cpu for stage in mine),
            sum(run.cpu for run in runs),
            sum(stage.bytes for stage in mine),
            sum(made),
            sum(stage.files for stage in mine),
            len(made),
        )
