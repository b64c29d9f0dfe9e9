"""The work of transform on one shard: documents as a mix reads them, rewritten on their way to the file."""

from collections.abc import Iterator
from dataclasses import dataclass

from dolma_dask.engine.documents import DocumentSource, DocumentStage
from dolma_dask.formats import layout
from dolma_dask.formats.documents import text_bytes
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine
from dolma_dask.io.records import Block
from dolma_dask.journal import work_key
from dolma_dask.reading.kept import transform as mixing
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.sinks.sink import DocumentRows, ShardFacts
from dolma_dask.verbs.transform.rewriting import Rewriter, Rewriting

VERSION = 1
"""Raised whenever transform writes other bytes for the same documents and function."""


@dataclass(frozen=True)
class TransformStage(DocumentStage):
    """Reads each shard once, and rewrites its documents."""

    rewriting: Rewriting
    root: str  # of the documents that are read

    def key(self, mixture: Mixture) -> str:
        """Return the key of the documents."""
        params = {**self.policy.params(), "mix": mixing.VERSION}
        return work_key("transform", VERSION, {**mixture.params(), **self.rewriting.params(), **params})

    def documents(
        self, source: DocumentSource, columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield rewritten documents; see `DocumentStage`."""
        rewriter = Rewriter(self.rewriting, files.join(self.root, layout.document_path(source.name)))
        documents, size = 0, 0
        for before in source.read(columns, self.policy, quarantine, facts):
            after, bad = rewriter(before)
            quarantine.admit(Block(after.batch, 0, tuple(bad)))
            documents += after.batch.num_rows
            size += text_bytes(after.batch.column("text"))
            yield after
        written = {"documents_out": documents, "text_bytes_out": size, "bad_records": quarantine.count}
        facts.counts = {**facts.counts, **written, **rewriter.counts}
