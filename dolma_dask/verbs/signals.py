"""signals: documents -> the quality signals of RedPajama-V2 as it publishes them, a file for each shard, for tools that read these.

``tag`` with the same taggers makes attributes of them, which the other verbs read; `attach` makes these of published files. Ids are the published ones, as for `sign`.
Signals of models (``rps_doc_ml_*``, ``*_importance``) are not among them. Memory: a few blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
from msgspec import Struct

from dolma_dask.engine import Unit
from dolma_dask.formats import layout
from dolma_dask.formats.metadata import PREFIX, scan_metadata
from dolma_dask.formats.redpajama import QUALITY_SIGNALS, RisingIds
from dolma_dask.formats.redpajama_signals import Signal, signal_rows
from dolma_dask.io import files
from dolma_dask.io.artifacts import Artifacts
from dolma_dask.options.base import Opt, without_empty
from dolma_dask.options.command import command
from dolma_dask.options.groups import PublishedDocuments
from dolma_dask.options.taggers import ArtifactOptions
from dolma_dask.outputs.published import PublishedOptions, check_not_combined, write_tables
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.jsonl import JsonlWriter
from dolma_dask.sinks.sink import DocumentRows, FileSink
from dolma_dask.taggers.base import ViewTagger
from dolma_dask.taggers.redpajama import redpajama_v2_ccnet, redpajama_v2_doc, redpajama_v2_lines
from dolma_dask.text.view import TextView

VERSION = 1
"""Raised whenever signals writes other bytes for the same documents and taggers."""

TAGGERS = (redpajama_v2_ccnet, redpajama_v2_doc, redpajama_v2_lines)
"""In the order in which their signals are published."""

_FIELDS = ("cc_segment", "url", "source_domain", "language")


@dataclass(frozen=True, kw_only=True)
class SignalOptions(ArtifactOptions, PublishedOptions):
    """Options of `signals`."""


@command
def signals(
    dataset: PublishedDocuments,
    to: Annotated[str, Opt("Output folder.")],
    /,
    *,
    options: SignalOptions,
) -> Summary:
    """Write the rule-based quality signals of all documents as RedPajama-V2 publishes them: <snapshot>/<shard>/<lang>_<bucket>.signals.json.gz.

    Example: dolma-dask signals corpus/rpv2/v0 out/quality_signals --artifacts lists

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
    Signals whose list is not among the artifacts are null.
    """
    opened = options.open(dataset)
    check_not_combined(opened)
    used = options.artifacts_of(TAGGERS)
    taggers = [[tagger.name, tagger.version] for tagger in TAGGERS]
    decided = {**without_empty({"artifacts": used.checksums}), "taggers": taggers}
    # other bytes of a file, or another version of a tagger, are no other options
    shown = {"artifacts": [name for name, _ in used.checksums], "taggers": None}
    output = SignalOutput(files.normalize(to), used)
    return write_tables(opened, output, QUALITY_SIGNALS, options, decided, version=VERSION, shown=shown)


class SignalOutput(Struct, frozen=True):
    """A file of signals for each shard of documents."""

    root: str
    artifacts: Artifacts = msgspec.field(default_factory=Artifacts)  # files that taggers use
    verb: ClassVar[str] = "signals"
    columns: ClassVar[tuple[str, ...]] = ("id", "text", "metadata")

    def open(self, unit: Unit, shard: str) -> "SignalSink":
        """See `dolma_dask.sinks.sink.Output`."""
        taggers = [self.artifacts.loaded(tagger) for tagger in TAGGERS]
        return SignalSink(self.root, unit.name, shard, taggers)


class SignalSink(FileSink[JsonlWriter]):
    """Writes the signals of one shard."""

    def __init__(self, root: str, path: str, shard: str, taggers: Sequence[ViewTagger]) -> None:
        super().__init__(JsonlWriter(root, path))
        self._ids = RisingIds(layout.document_path(shard))
        self._taggers = taggers

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
