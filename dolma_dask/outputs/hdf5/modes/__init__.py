"""Modes of `hdf5`: a file each, with its options and the mode that they make."""

from collections.abc import Mapping

from dolma_dask.outputs.hdf5.modes.common import ModeOptions
from dolma_dask.outputs.hdf5.modes.dpo import DpoOptions
from dolma_dask.outputs.hdf5.modes.fim import FimOptions
from dolma_dask.outputs.hdf5.modes.lm import LmOptions
from dolma_dask.outputs.hdf5.modes.lm_vsl import LmVslOptions
from dolma_dask.outputs.hdf5.modes.summarization import SummarizationOptions, SummarizationVslOptions

MODES: Mapping[str, type[ModeOptions]] = {
    kind.name: kind
    for kind in (
        LmOptions,
        LmVslOptions,
        FimOptions,
        SummarizationOptions,
        SummarizationVslOptions,
        DpoOptions,
    )
}
"""Options of each mode."""
