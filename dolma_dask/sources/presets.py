"""Mappings for raw data as it is published, by name.

Field names are those of the data sets' own cards and files. Where a card gives only the time of the crawl, that is ``created``: the
format asks for a best guess. The ids of RedPajama-V2 are those of its own signal files: path and row.
"""

from collections.abc import Mapping
from types import MappingProxyType

from dolma_dask.errors import UsageError
from dolma_dask.sources.mapping import FieldMapping

PRESETS: Mapping[str, FieldMapping] = MappingProxyType(
    {
        "dolma": FieldMapping(),
        "c4": FieldMapping(created="timestamp", source_name="c4"),
        "fineweb": FieldMapping(id="id", created="date", source_name="fineweb"),
        "pile": FieldMapping(source="meta.pile_set_name"),
        "redpajama_v1": FieldMapping(source="red_pajama_subset", source_name="redpajama_v1"),
        "redpajama_v2": FieldMapping(
            text="raw_content",
            created="date_download",
            source_name="redpajama_v2",
            generated_id="{path}/{row}",
        ),
        "refinedweb": FieldMapping(text="content", created="timestamp", source_name="refinedweb"),
        "slimpajama": FieldMapping(source="meta.redpajama_set_name"),
        "wikipedia": FieldMapping(id="id", source_name="wikipedia"),
    }
)
"""Name of the raw data to its mapping."""


def preset(name: str) -> FieldMapping:
    """Return the mapping of a published data set.

    Parameters
    ----------
    name : str
        One of `PRESETS`.

    Raises
    ------
    UsageError
        There is no mapping of that name.
    """
    if name not in PRESETS:
        raise UsageError(
            f"mapping {name!r} is not known; expected one of {', '.join(PRESETS)}, or the fields one by one.",
            name=name,
        )
    return PRESETS[name]
