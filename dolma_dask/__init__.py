"""Curate text for language models on Dask: convert, tag, mix, tokenize and report, from a laptop to a cluster.

Verbs write, resume and return a small summary that prints as a table::

    import dolma_dask as dk

    dk.convert("raw", to="corpus/v0", source="wiki")
    dk.tag("corpus/v0", ["gopher_v2"])
    v1 = dk.mix("corpus/v0", to="corpus/v1", where="word_count >= 50")
    dk.ragged(v1, "out/ragged", tokenizer="tokenizer.json")

Importing the package is cheap: each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

from dolma_dask.registry import COMMANDS, load

__version__ = "0.1.0"

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
    "write_attributes": "dolma_dask.frames.attributes:write_attributes",
    "write_documents": "dolma_dask.frames.documents:write_documents",
    "write_ragged": "dolma_dask.frames.ragged:write_ragged",
    "write_hdf5": "dolma_dask.frames.hdf5:write_hdf5",
    "list_taggers": "dolma_dask.taggers.registry:list_taggers",
    "get_tagger": "dolma_dask.taggers.registry:get_tagger",
    "tagger": "dolma_dask.taggers.registry:tagger",
    "Figure": "dolma_dask.figures.figure:Figure",
    "open_ragged": "dolma_dask.loaders.ragged:open_ragged",
}
"""Public names: every command under its own name, and what else users call."""

if TYPE_CHECKING:  # the same names for type checkers and editors (tests/unit/test_project.py compares both)
    from dolma_dask.clusters import cluster as cluster
    from dolma_dask.dataset import Dataset as Dataset
    from dolma_dask.dataset import open_dataset as open_dataset
    from dolma_dask.figures.figure import Figure as Figure
    from dolma_dask.frames.attributes import write_attributes as write_attributes
    from dolma_dask.frames.dataframe import read_bag as read_bag
    from dolma_dask.frames.dataframe import read_dataframe as read_dataframe
    from dolma_dask.frames.documents import write_documents as write_documents
    from dolma_dask.frames.hdf5 import write_hdf5 as write_hdf5
    from dolma_dask.frames.ragged import write_ragged as write_ragged
    from dolma_dask.loaders.ragged import open_ragged as open_ragged
    from dolma_dask.pages.verb import report as report
    from dolma_dask.pipelines.demonstration import demo as demo
    from dolma_dask.pipelines.demonstration import demo_corpus as demo_corpus
    from dolma_dask.pipelines.estimate.question import estimate as estimate
    from dolma_dask.pipelines.opened_pipeline import pipeline as pipeline
    from dolma_dask.pipelines.pipeline import run as run
    from dolma_dask.pipelines.warming import warm_up as warm_up
    from dolma_dask.questions.cluster.verb import cluster_check as cluster_check
    from dolma_dask.questions.cluster.verb import cluster_script as cluster_script
    from dolma_dask.questions.cluster_members import show_cluster as show_cluster
    from dolma_dask.questions.histogram import histogram as histogram
    from dolma_dask.questions.lengths import lengths as lengths
    from dolma_dask.questions.rule_overlap import rule_overlap as rule_overlap
    from dolma_dask.questions.status.question import status as status
    from dolma_dask.questions.what_if.question import what_if as what_if
    from dolma_dask.reading.thresholds import read_thresholds as read_thresholds
    from dolma_dask.reading.thresholds import thresholds as thresholds
    from dolma_dask.results.summary import Summary as Summary
    from dolma_dask.rules.rules import duplicates as duplicates
    from dolma_dask.rules.rules import listed as listed
    from dolma_dask.taggers.registry import get_tagger as get_tagger
    from dolma_dask.taggers.registry import list_taggers as list_taggers
    from dolma_dask.taggers.registry import tagger as tagger
    from dolma_dask.verbs.attach import attach as attach
    from dolma_dask.verbs.block.verb import block as block
    from dolma_dask.verbs.convert.verb import convert as convert
    from dolma_dask.verbs.dedupe.verb import dedupe as dedupe
    from dolma_dask.verbs.download.verb import download as download
    from dolma_dask.verbs.filter.verb import filter as filter
    from dolma_dask.verbs.hdf5.verb import hdf5 as hdf5
    from dolma_dask.verbs.mix.verb import mix as mix
    from dolma_dask.verbs.quantiles.verb import quantiles as quantiles
    from dolma_dask.verbs.ragged import ragged as ragged
    from dolma_dask.verbs.sign import sign as sign
    from dolma_dask.verbs.signals import signals as signals
    from dolma_dask.verbs.tag import tag as tag
    from dolma_dask.verbs.transform.verb import transform as transform
    from dolma_dask.verbs.validate.verb import validate as validate

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
