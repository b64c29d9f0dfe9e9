"""lengths: how many tokens the documents of token shards have, from their lengths alone, and what a sequence length makes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from dolma_dask import engine
from dolma_dask.display import counted, html_table, integer, percent, text_table
from dolma_dask.engine import Input, Task
from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.histogram import Histogram, signal_histogram
from dolma_dask.io.files import FileInfo
from dolma_dask.loaders.ragged import TokenShard, open_ragged
from dolma_dask.questions.saving import check_target, save_figure
from dolma_dask.text.kernels import Counts
from dolma_dask.tokens.packing import count_document_rows, stream_rows
from dolma_dask.verbs.options import RunArgs, checked, run_options

if TYPE_CHECKING:
    import pandas as pd

SEQ_LENGTHS = (512, 1024, 2048, 4096)

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

ALL = "all"
