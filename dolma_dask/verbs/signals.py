"""signals: documents -> the quality signals of RedPajama-V2 as it publishes them, a file for each shard, for tools that read these.

``tag`` with the same taggers makes attributes of them, which the other verbs read; `attach` makes these of published files. Ids are the published ones, as for `sign`.
Signals of models (``rps_doc_ml_*``, ``*_importance``) are not among them. Memory: a few blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Unpack

from dolma_dask.engine import Unit
from dolma_dask.formats import layout
from dolma_dask.formats.metadata import PREFIX, scan_metadata
from dolma_dask.formats.redpajama import QUALITY_SIGNALS, RisingIds
from dolma_dask.formats.redpajama_rows import Signal, signal_rows
from dolma_dask.io import files
from dolma_dask.io.artifacts import Artifacts
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.options.shared import (
    DatasetLike,
    Many,
    ReadArgs,
    RuleLike,
    as_dataset,
    checked,
    without_empty,
)
from dolma_dask.outputs.published import write_tables
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.jsonl import JsonlWriter
from dolma_dask.sinks.sink import DocumentRows, ShardFacts, WriterSink
from dolma_dask.taggers.base import ViewTagger
from dolma_dask.taggers.redpajama import redpajama_v2_ccnet, redpajama_v2_doc, redpajama_v2_lines
from dolma_dask.text.view import TextView

VERSION = 1
"""Raised whenever signals writes other bytes for the same documents and taggers."""

TAGGERS = (redpajama_v2_ccnet, redpajama_v2_doc, redpajama_v2_lines)
"""In the order in which their signals are published."""

_FIELDS = ("cc_segment", "url", "source_domain", "language")


def signals(
    dataset: DatasetLike,
    to: str,
    /,
    *,
    artifacts: str | None = None,
    where: RuleLike = None,
    attributes: Annotated[Sequence[str], Many] = (),
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[ReadArgs],
) -> Summary:
    """Write the rule-based quality signals of all documents as RedPajama-V2 publishes them: <snapshot>/<shard>/<lang>_<bucket>.signals.json.gz.

    Example: dolma-dask signals corpus/rpv2/v0 out/quality_signals --artifacts lists

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it, whose ids are those of RedPajama-V2 (convert --mapping redpajama_v2 makes them).
    to : str
        Output folder.
    artifacts : str, optional
        Folder with lists of words and domains, as in tag; signals without their list are null.
    where : str, optional
        Only documents for which this holds, as in mix.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some shards failed; one with other ids does.
    UsageError
        Published files were combined in the shards; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Files are those of published files, one each: of a dataset in which `convert` has combined them there are none. `tag` needs no such files.
    """
    options = checked(signals, options, ReadArgs)
    opened = as_dataset(dataset, source, version)
    used = Artifacts() if artifacts is None else Artifacts.of(artifacts, TAGGERS)
    output = SignalOutput(files.normalize(to), used)
    return write_tables(opened, output, QUALITY_SIGNALS, where, attributes, options)


@dataclass(frozen=True)
class SignalOutput:
    """A file of signals for each shard of documents."""

    root: str
    artifacts: Artifacts = field(default_factory=Artifacts)  # files that taggers use
    verb: ClassVar[str] = "signals"
    columns: ClassVar[tuple[str, ...]] = ("id", "text", "metadata")

    def open(self, unit: Unit, shard: str) -> "SignalSink":
        """See `dolma_dask.sinks.sink.Output`."""
        taggers = [self.artifacts.loaded(tagger) for tagger in TAGGERS]
        return SignalSink(self.root, unit.name, shard, taggers)

    def key(self, documents: Mapping[str, Any], policy: RecordPolicy) -> str:
        """See `dolma_dask.outputs.published.PublishedOutput`."""
        params = {
            **documents,
            **without_empty({"artifacts": self.artifacts.checksums}),
            "taggers": [[tagger.name, tagger.version] for tagger in TAGGERS],
            "max_record_bytes": policy.max_record_bytes,
            "on_bad_record": policy.on_bad_record,
        }
        return work_key(self.verb, VERSION, params)


class SignalSink(WriterSink[JsonlWriter]):
    """Writes the signals of one shard."""

    def __init__(self, root: str, path: str, shard: str, taggers: Sequence[ViewTagger]) -> None:
        super().__init__(JsonlWriter(root, path))
        self._ids = RisingIds(layout.document_path(shard))
        self._taggers = taggers
        self._rows = 0

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        if not len(rows.batch):
            return
        ids = rows.batch.column("id")
        self._ids.split(ids)
        view = TextView(rows.batch.column("text"))
        tagged = [tagger.of_view(view, rows.batch) for tagger in self._taggers]
        found = [Signal(name, batch.column(name)) for batch in tagged for name in batch.schema.names]
        fields, _ = scan_metadata(
            rows.batch.column("metadata"), {PREFIX + name: "string" for name in _FIELDS}
        )
        metadata = {name: fields[PREFIX + name] for name in _FIELDS}
        self.writer.write(signal_rows(ids, metadata, view.lengths, found))
        self._rows += len(ids)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        file = self.writer.record
        return facts.record(
            unit,
            (file, *quarantined),
            self._rows,
            ids_digest=facts.ids_digest,
            content_digest=facts.content_digest,
            counts={"bytes_out": file.bytes},
        )
