"""Curate text for language models on Dask: convert, tag, mix, tokenize and report, from a laptop to a cluster.

Verbs write, resume and return a small summary that prints as a table::

    import dolma_dask as dk

    dk.convert("raw", to="corpus/v0", source="wiki")
    dk.tag("corpus/v0", ["gopher_v2"])
    v1 = dk.mix("corpus/v0", to="corpus/v1", where="word_count >= 50")
    dk.ragged(v1, "out/ragged", tokenizer="tokenizer.json")

Importing the package is cheap: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Dataset": "dolma_dask.dataset",
    "open_dataset": "dolma_dask.dataset",
    "Summary": "dolma_dask.summary",
    "cluster": "dolma_dask.clusters",
    "convert": "dolma_dask.stages.convert",
    "tag": "dolma_dask.stages.tag",
    "validate": "dolma_dask.stages.validate",
    "quantiles": "dolma_dask.stages.quantiles",
    "thresholds": "dolma_dask.stages.quantile.thresholds",
    "read_thresholds": "dolma_dask.stages.quantile.thresholds",
    "dedupe": "dolma_dask.stages.dedupe",
    "duplicates": "dolma_dask.mixing.marks",
    "block": "dolma_dask.stages.block",
    "listed": "dolma_dask.mixing.marks",
    "read_dataframe": "dolma_dask.partitions.dataframe",
    "read_bag": "dolma_dask.partitions.bag",
    "mix": "dolma_dask.stages.mix",
    "ragged": "dolma_dask.stages.ragged",
    "hdf5": "dolma_dask.stages.hdf5",
    "report": "dolma_dask.stages.report",
    "run": "dolma_dask.config.pipeline",
    "status": "dolma_dask.questions.status",
    "demo": "dolma_dask.config.demonstration",
    "list_taggers": "dolma_dask.taggers.registry",
    "get_tagger": "dolma_dask.taggers.registry",
    "tagger": "dolma_dask.taggers.registry",
    "open_ragged": "dolma_dask.loaders.ragged",
}

if TYPE_CHECKING:
    from dolma_dask.clusters import cluster
    from dolma_dask.config.demonstration import demo
    from dolma_dask.config.pipeline import run
    from dolma_dask.dataset import Dataset, open_dataset
    from dolma_dask.loaders.ragged import open_ragged
    from dolma_dask.mixing.marks import duplicates, listed
    from dolma_dask.partitions.bag import read_bag
    from dolma_dask.partitions.dataframe import read_dataframe
    from dolma_dask.questions.status import status
    from dolma_dask.stages.block import block
    from dolma_dask.stages.convert import convert
    from dolma_dask.stages.dedupe import dedupe
    from dolma_dask.stages.hdf5 import hdf5
    from dolma_dask.stages.mix import mix
    from dolma_dask.stages.quantile.thresholds import read_thresholds, thresholds
    from dolma_dask.stages.quantiles import quantiles
    from dolma_dask.stages.ragged import ragged
    from dolma_dask.stages.report import report
    from dolma_dask.stages.tag import tag
    from dolma_dask.stages.validate import validate
    from dolma_dask.summary import Summary
    from dolma_dask.taggers.registry import get_tagger, list_taggers, tagger

__all__ = [
    "Dataset",
    "Summary",
    "block",
    "cluster",
    "convert",
    "dedupe",
    "demo",
    "duplicates",
    "get_tagger",
    "hdf5",
    "list_taggers",
    "listed",
    "mix",
    "open_dataset",
    "open_ragged",
    "quantiles",
    "ragged",
    "read_bag",
    "read_dataframe",
    "read_thresholds",
    "report",
    "run",
    "status",
    "tag",
    "tagger",
    "thresholds",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
