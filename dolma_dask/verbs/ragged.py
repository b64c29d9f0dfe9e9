"""ragged: documents -> token ids, in the format of whoever reads them: NumPy arrays with lengths beside them, or files of a trainer.

From a dataset, or straight from a selection of it (``where``), without a file between. One token shard per document shard; order is kept.
"""

from dataclasses import dataclass
from typing import Annotated

from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import Documents
from dolma_dask.outputs.kept import FileOptions, make_files
from dolma_dask.outputs.ragged import ArrayOptions
from dolma_dask.outputs.tokenizing import by_definition_if_engines_differ
from dolma_dask.results.summary import Summary


@dataclass(frozen=True, kw_only=True)
class RaggedOptions(ArrayOptions, FileOptions):
    """Options of `ragged`."""


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
    documents = options.documents(options.open(dataset))
    return by_definition_if_engines_differ(
        [options],
        lambda: make_files(options.output(to).plan(documents, options.name, options.policy), options),
    )
