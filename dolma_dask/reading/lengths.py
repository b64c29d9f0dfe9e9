"""Columns that tell how long texts are, so that text can be counted without opening documents."""

from collections.abc import Sequence

from dolma_dask.dataset import Dataset
from dolma_dask.reading.catalog import Catalog
from dolma_dask.reading.columns import look_up
from dolma_dask.rules.values import once_each

LENGTHS = ("ccnet_length", "char_length_v1__length", "character_count", "rps_doc_word_count", "word_count")
"""Columns that grow with the text, best first: characters, then words."""


def find_length(dataset: Dataset, names: Sequence[str]) -> str | None:
    """Return the column that tells best how long a text is: one of `names`, which are read anyway, or an attribute key; None if there is none."""
    sets = dataset.with_current_attributes().attributes
    known, _ = look_up(Catalog(dataset), sets, once_each) if sets else ([], {})
    for wanted in LENGTHS:
        for columns in (names, known):
            found = [name for name in columns if name == wanted or name.endswith(f"__{wanted}")]
            if len(found) == 1:
                return found[0]
    return None
