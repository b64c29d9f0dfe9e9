"""ragged: documents -> token ids, in the format of whoever reads them: NumPy arrays with lengths beside them, or files of a trainer.

From a dataset, or straight from a selection of it (``where``), without a file between. One token shard per document shard; order is kept.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec.structs import replace

from dolma_dask.engine import run_job
from dolma_dask.engine.documents import DocumentList
from dolma_dask.errors import UsageError
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import Documents
from dolma_dask.outputs.kept import FileOptions, make_files
from dolma_dask.outputs.packed_tokens import packed_tokens
from dolma_dask.outputs.ragged import ArrayOptions, RaggedOutput
from dolma_dask.outputs.tokenizing import by_definition_if_engines_differ
from dolma_dask.reading.selection import rule_notes
from dolma_dask.results.summary import Summary


@dataclass(frozen=True, kw_only=True)
class RaggedOptions(ArrayOptions, FileOptions):
    """Options of `ragged`."""

    shuffle: Annotated[
        bool,
        Opt(
            "Write the documents of all shards in an order drawn by the seed, in the formats dolma, megatron and datatrove."
        ),
    ] = False
    seed: Annotated[int, Opt("Seed of the order.", min=0, max=2**64 - 1)] = 0
    max_size: Annotated[
        int | None,
        Opt(
            "Bytes of ids in a file at most, 2 GiB with `shuffle`. With it, or with `shuffle`, documents of all shards go to files part-0-00000, -00001 and so on (`name` stands for part-0): "
            "each is whole in one file, and one that is larger has a file of its own. Without, there is one per shard.",
            min=1,
        ),
    ] = None
    id_key: Annotated[
        str | None,
        Opt(
            "Column whose value stands for the id of each document in the files that have ids, such as metadata.url; where it is missing, the id itself.",
            group=OUTPUT,
        ),
    ] = None

    def check(self) -> None:
        """Refuse the seed of an order that is not drawn."""
        super().check()
        if self.seed and not self.shuffle:
            raise UsageError(
                f"seed={self.seed} without `shuffle`; expected both, since documents are in the order of their shards otherwise."
            )

    def output(self, to: str) -> RaggedOutput:
        """See `ArrayOptions`."""
        has_ids = "id" in FORMATS[self.format].columns
        if self.id_key is not None and not has_ids:
            named = ", ".join(name for name, one in FORMATS.items() if "id" in one.columns)
            raise UsageError(
                f"id_key with format={self.format!r}, whose files have no ids; expected one of {named}."
            )
        return replace(super().output(to), id_key=self.id_key)


@command
def ragged(
    dataset: Documents, to: Annotated[str, Opt("Flat output folder.")], /, *, options: RaggedOptions
) -> Summary:
    """Tokenize documents into files of token ids for a trainer; by default ragged NumPy arrays: <name>.<i>-of-<n>.data.npy with the ids, .len.npy with tokens per document.

    Example: dolma-dask ragged corpus/wiki/v1 out/ragged --tokenizer t5.json --eos "</s>"

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        The tokenizer cannot be read, or lacks a special token; or an argument is unknown, or has a value that it cannot have.
    """
    beside = () if options.id_key is None else (options.id_key,)
    opened = options.open(dataset)
    documents = options.documents(opened, to, beside)

    def make() -> Summary:
        return _make(replace(options.output(to), folder=opened.folder), documents, options)

    return by_definition_if_engines_differ([options], make)


def _make(output: RaggedOutput, documents: DocumentList, options: RaggedOptions) -> Summary:
    if not documents.parts or (not options.shuffle and options.max_size is None):
        return make_files(output.plan(documents, options.name, options.policy), options)
    seed = options.seed if options.shuffle else None
    job = packed_tokens(
        output, documents, options.policy, name=options.name, max_bytes=options.max_size, seed=seed
    )
    summary = run_job(job, options)
    return replace(summary, notes=tuple(dict.fromkeys((*summary.notes, *rule_notes(summary)))))
