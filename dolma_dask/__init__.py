"""Curate text for language models on Dask: convert, tag, mix, tokenize and report, from a laptop to a cluster.

Verbs write, resume and return a small summary that prints as a table::

    import dolma_dask as dk

    dk.convert("raw", to="corpus/v0", source="wiki")
    dk.tag("corpus/v0", ["gopher_v2"])
    v1 = dk.mix("corpus/v0", to="corpus/v1", where="word_count >= 50")
    dk.ragged(v1, "out/ragged", tokenizer="tokenizer.json")

Importing the package is cheap: each name is loaded when it is first used.
"""

import os
from typing import Any

from dolma_dask.registry import COMMANDS, load

__version__ = "0.1.0"

# each thread that OpenBLAS starts with NumPy spins for 2 ** 26 cycles before it sleeps: 0.1 CPU-seconds for every processor but one
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

_EXPORTS = {
    name: entry.function
    for name, entry in (
        (command.replace("-", "_").replace(" ", "_"), entry) for command, entry in COMMANDS.items()
    )
    if entry.function.endswith(f":{name}")
} | {
    "Dataset": "dolma_dask.dataset:Dataset",
    "pipeline": "dolma_dask.pipelines.opened_pipeline:pipeline",
    "demo_corpus": "dolma_dask.pipelines.demonstration:demo_corpus",
    "open_dataset": "dolma_dask.dataset:open_dataset",
    "Summary": "dolma_dask.results.summary:Summary",
    "cluster": "dolma_dask.clusters:cluster",
    "thresholds": "dolma_dask.reading.thresholds:thresholds",
    "read_thresholds": "dolma_dask.reading.thresholds:read_thresholds",
    "duplicates": "dolma_dask.rules.rules:duplicates",
    "listed": "dolma_dask.rules.rules:listed",
    "read_dataframe": "dolma_dask.frames.dataframe:read_dataframe",
    "read_bag": "dolma_dask.frames.dataframe:read_bag",
    "read_table": "dolma_dask.frames.table:read_table",
    "write_attributes": "dolma_dask.frames.attributes:write_attributes",
    "write_documents": "dolma_dask.frames.documents:write_documents",
    "write_ragged": "dolma_dask.frames.ragged:write_ragged",
    "write_hdf5": "dolma_dask.frames.hdf5:write_hdf5",
    "list_taggers": "dolma_dask.taggers.registry:list_taggers",
    "get_tagger": "dolma_dask.taggers.registry:get_tagger",
    "tagger": "dolma_dask.taggers.registry:tagger",
    "LmOptions": "dolma_dask.outputs.hdf5.modes.lm:LmOptions",
    "LmVslOptions": "dolma_dask.outputs.hdf5.modes.lm_vsl:LmVslOptions",
    "FimOptions": "dolma_dask.outputs.hdf5.modes.fim:FimOptions",
    "SummarizationOptions": "dolma_dask.outputs.hdf5.modes.summarization:SummarizationOptions",
    "SummarizationVslOptions": "dolma_dask.outputs.hdf5.modes.summarization:SummarizationVslOptions",
    "DpoOptions": "dolma_dask.outputs.hdf5.modes.dpo:DpoOptions",
    "Figure": "dolma_dask.figures.figure:Figure",
    "open_ragged": "dolma_dask.loaders.ragged:open_ragged",
    "TokenDataset": "dolma_dask.loaders.token_dataset:TokenDataset",
    "torch_dataset": "dolma_dask.loaders.torch_tokens:torch_dataset",
}
"""Public names: every command under its own name, and what else users call. Type checkers and editors read ``__init__.pyi``."""

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = load(_EXPORTS[name])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
