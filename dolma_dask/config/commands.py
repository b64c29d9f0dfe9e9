"""Which verbs and questions there are: the one table that the command line and pipelines read.

Nothing is imported until it is called, so that help costs a tenth of a second.
"""

import importlib
from collections.abc import Callable
from typing import Any

VERBS: dict[str, tuple[str, str]] = {
    "convert": ("dolma_dask.stages.convert:convert", "Turn raw files into documents in the Dolma layout."),
    "validate": ("dolma_dask.stages.validate:validate", "Check every file and every row of a dataset."),
    "tag": ("dolma_dask.stages.tag:tag", "Run taggers over every document, in one pass."),
    "quantiles": (
        "dolma_dask.stages.quantiles:quantiles",
        "Find quantiles of signals, and thresholds, per group of documents.",
    ),
    "dedupe": ("dolma_dask.stages.dedupe:dedupe", "Mark all but one of the documents that are equal."),
    "block": ("dolma_dask.stages.block:block", "Mark the documents that stand in a list of ids."),
    "mix": ("dolma_dask.stages.mix:mix", "Write a new version with the documents that a rule keeps."),
    "ragged": ("dolma_dask.stages.ragged:ragged", "Tokenize documents into ragged NumPy arrays."),
    "hdf5": ("dolma_dask.stages.hdf5:hdf5", "Pack documents into HDF5 rows for Cerebras systems."),
    "report": ("dolma_dask.stages.report:report", "Write one HTML page that shows what happened."),
}
"""What can be a stage of a pipeline: where the function is, and its help in the list of commands."""

COMMANDS: dict[str, tuple[str, str]] = {
    **VERBS,
    "run": (
        "dolma_dask.config.pipeline:run",
        "Run the stages of a YAML file, with one cluster, and go on where they stopped.",
    ),
    "status": ("dolma_dask.questions.status:status", "Tell what is done, left and changed in a dataset."),
    "list": ("dolma_dask.questions.taggers:show_taggers", "List the taggers, built in and from plug-ins."),
    "demo": ("dolma_dask.config.demonstration:demo", "Do all of this on text from this Python installation."),
}
"""All commands, in the order in which help shows them."""

DOLMA_CONFIGS: dict[str, str] = {"mix": "dolma_dask.config.dolma_mix:mix_config"}
"""Verbs that take the Dolma toolkit's configuration files (``-c FILE``), and the function that does."""


def load(target: str) -> Callable[..., Any]:
    """Import a function by ``module:name``."""
    module, name = target.split(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
