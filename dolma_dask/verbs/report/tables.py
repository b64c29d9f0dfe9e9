"""The tables of a page, made from records of the journals and from what was found in the documents."""

import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from dolma_dask.display import counted
from dolma_dask.errors import CorruptFileError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Record
from dolma_dask.reading import CONVERTED
from dolma_dask.verbs.report.bins import signal_histogram
from dolma_dask.verbs.report.histogram import Histogram, boundary
from dolma_dask.verbs.report.history import Step, is_packed
from dolma_dask.verbs.report.model import (
    Example,
    QuarantineRow,
    RuleRow,
    Side,
    SignalHistogram,
    SourceRow,
    StageRow,
)
from dolma_dask.verbs.report.names import last_name, stem
from dolma_dask.verbs.report.survey import Findings, Survey, Values, largest_sources

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

SHOWN_SOURCES = 200
"""Rows of the table of sources; the rest share one more row."""

# ------------------------------------------------------------------------------------------------ from the journals


def stage_row(step: Step) -> StageRow:
    """Sum up the records of one verb."""
    counts = _totals(step.records)
    documents_in = counts.get("documents_in")
    written = sum(
        file.bytes for record in step.records for file in record.files if not file.path.startswith("_")
    )
    return StageRow(
        verb=step.verb,
        documents_in=documents_in,
        documents_out=counts.get("documents_out", documents_in),
        bytes_out=written if step.records else None,
        text_bytes=counts.get("text_bytes_out", counts.get("text_bytes")),
        tokens=counts.get("tokens"),
        seconds=round(sum(record.seconds for record in step.records), 3) or None,
        shards=_shards(step.records) or None,
        bad_records=counts.get("bad_records", 0),
        note=_note(step, counts),
    )


def _shards(records: Sequence[Record]) -> int:
    """Count shards; of files that were cut by size the files, since these are the shards of the new version."""
    packed = [record for record in records if is_packed(record)]
    others = {record.shard for record in records if record.shard != record.unit and record not in packed}
    return len(others) + sum(not file.path.startswith("_") for record in packed for file in record.files)


def _totals(records: Sequence[Record]) -> dict[str, int]:
    """Add up counts; attribute sets of one shard count the same documents, and only once."""
    units: dict[str, Counter[str]] = {}
    for record in records:
        derived = record.unit.startswith(f"{layout.ATTRIBUTES}/")
        known = units.setdefault(f"{layout.ATTRIBUTES}/{record.shard}" if derived else record.unit, Counter())
        known |= Counter({name: int(count) for name, count in record.counts.items()})  # the larger of both
    names = {name for record in records for name in record.counts}
    return {name: sum(counts[name] for counts in units.values()) for name in names}


def _note(step: Step, counts: Mapping[str, int]) -> str:
    told = step.params
    parts: list[str] = []
    parts.append(
        ", ".join(sorted({name for record in step.records for name in record.info.get("taggers", ())}))
    )
    if step.verb == CONVERTED:
        parts.append(", ".join(sorted({_renaming(record) for record in step.records})))
    if isinstance(told.get("from"), str):
        parts.append(f"from {last_name(told['from'])}")
    parts += [f"{name} {told[name]}" for name in ("tokenizer", "bos", "eos") if told.get(name)]
    parts += ["shuffled"] if told.get("shuffle") else []
    parts += [f"files of at most {told['max_size']:,} bytes"] if told.get("max_size") else []
    if counts.get("unproved_attribute_files"):
        parts.append(
            counted(counts["unproved_attribute_files"], "attribute file")
            + " without a record of how it was made"
        )
    return "; ".join(filter(None, parts))


def _renaming(record: Record) -> str:
    """Tell which attribute set a record's file was made of, and which it belongs to."""
    old = [item.path.split("/")[1] for item in record.inputs if item.path.startswith(f"{layout.ATTRIBUTES}/")]
    return f"{', '.join(old)} to {record.unit.split('/')[1]}"


class _Quarantined(msgspec.Struct):
    """What of a quarantined record is counted."""

    reason: str


@dataclass(frozen=True)
class QuarantineFile:
    """A file of quarantined records: of which verb, where it is, and its path relative to what the verb wrote."""

    verb: str
    url: str
    info: FileInfo


def quarantine_files(steps: Sequence[Step]) -> list[QuarantineFile]:
    """List the files of quarantined records of the shards that the steps show."""
    found: dict[str, QuarantineFile] = {}
    for step in steps:
        folder = f"{layout.QUARANTINE}/{step.verb}"
        for info in files.list_files(files.join(step.root, folder)):
            shard, _, suffix = info.path.rpartition(".")
            if suffix == "jsonl" and (step.stems is None or stem(shard) in step.stems):
                path = f"{folder}/{info.path}"
                url = files.join(step.root, path)
                found[url] = QuarantineFile(step.verb, url, FileInfo(path, info.bytes, info.stamp))
    return list(found.values())


def quarantine_rows(found: Sequence[QuarantineFile]) -> list[QuarantineRow]:
    """Count quarantined records by verb, in the order in which these come first, and reason.

    Raises
    ------
    CorruptFileError
        A quarantine file is damaged.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for file in found:
        counts.update((file.verb, reason) for reason in _reasons(file.url))
    verbs = list(dict.fromkeys(file.verb for file in found))
    order = sorted(counts, key=lambda item: (verbs.index(item[0]), -counts[item], item[1]))
    return [QuarantineRow(verb, reason.replace("_", " "), counts[verb, reason]) for verb, reason in order]


def _reasons(url: str) -> Iterable[str]:
    decoder = msgspec.json.Decoder(_Quarantined)
    with io.BufferedReader(files.open_read(url)) as lines:  # type: ignore[type-var]
        for number, line in enumerate(lines):
            try:
                yield decoder.decode(line).reason
            except msgspec.DecodeError as error:
                raise CorruptFileError(
                    f"{url}, line {number}: {error}; expected a quarantined record. Run the verb again, or delete the file.",
                    url=url,
                ) from error


# ------------------------------------------------------------------------------------------------ from the documents


def signal_rows(survey: Survey, found: Findings) -> list[SignalHistogram]:
    """Bin every signal for the page."""
    return [_signal_row(survey, key, found.signals.get(key, Values())) for key in survey.keys]


def _signal_row(survey: Survey, key: str, values: Values) -> SignalHistogram:
    lines = dict.fromkeys((bound.sign, bound.value) for bound in survey.bounds if bound.key == key)
    return signal_histogram(
        key,
        values.every,
        values.kept if survey.parts else None,
        quantiles=quantiles(values.every),
        threshold=tuple(lines),
    )


def quantiles(histogram: Histogram, probabilities: Iterable[float] = QUANTILES) -> dict[float, float]:
    """Return the smallest finite value that at least this share of finite values does not exceed.

    True to one bin of the histogram: a 4,096th of the value while no more than 4,096 bins are used, exact for whole numbers below 8,192.
    """
    total = np.cumsum(histogram.counts)
    if not len(total):
        return {}
    lower = np.clip(boundary(histogram.keys, histogram.shift), histogram.min, histogram.max)
    ranks = {p: max(1, math.ceil(p * int(total[-1]))) for p in probabilities}
    return {p: float(lower[np.searchsorted(total, rank)]) for p, rank in ranks.items()}


def source_rows(survey: Survey, found: Findings) -> list[SourceRow]:
    """Make the table of sources, largest first."""
    known = 4 if survey.parts else 2
    rows = largest_sources(found.sources, SHOWN_SOURCES)
    return [SourceRow(source, *counts[:known].tolist()) for source, counts in rows.items()]


def rule_rows(spelled: Sequence[str], found: Findings) -> list[RuleRow]:
    """Make the table of conditions, each spelled as in `spelled`."""
    documents = found.rows - found.bad
    counts = [found.matched.get(part, 0) for part in range(len(spelled))]
    return [
        RuleRow(rule, n, n / documents if documents else 0.0) for rule, n in zip(spelled, counts, strict=True)
    ]


def example_rows(survey: Survey, spelled: Sequence[str], found: Findings) -> list[Example]:
    """Make the examples: by condition, those inside before those outside, nearest first."""
    sides: tuple[Side, ...] = ("just inside", "just outside")
    return [
        Example(
            side,
            spelled[bound.part],
            bound.key,
            near.value,
            near.source,
            near.id,
            near.shard,
            near.row,
            near.excerpt,
        )
        for bound in survey.bounds
        for side in sides
        for near in found.near.get((bound.part, side), ())
    ]
