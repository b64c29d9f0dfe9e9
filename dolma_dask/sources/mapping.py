"""Fields of raw records as fields of documents.

Rules, the same for every source:

- A string stands for itself, an integer for its decimal digits, ``null`` for a missing field; anything else in a mapped field makes
  a bad record.
- A mapped field at the top level moves. One inside an object (``meta.url``) is copied and its object stays byte for byte,
  except that a nested text is cut out of its object.
- All other fields become members of ``metadata``. The members of an object that is already called ``metadata`` come first, as
  they stood; a field whose name is taken there gets ``_raw`` appended.
- With the default mapping, a line that has ``id``, ``text`` and ``source`` as strings is a document already and stays as it is.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict, force_setattr

from dolma_dask.errors import UsageError


class FieldMapping(Struct, frozen=True):
    """Fields of a raw record for those of a document; equal mappings have equal `canonical` text.

    Raises `UsageError`: a field name is empty, or `generated_id` cannot tell the rows of a file apart.
    """

    # Field of the id; a dot goes into objects (``meta.id``). None: the field ``id`` where a record has one, else an id made by
    # `generated_id`.
    id: str | None = None
    text: str = "text"  # field of the text
    source: str | None = None  # Field of the source. None: `source_name` if given, else the field ``source``.
    # Fields of the two time stamps. None: the fields of that name, where they hold a string or an integer. Records without them are fine.
    added: str | None = None
    created: str | None = None
    # the source of all records; if `source` is given too, only of records without that field
    source_name: str | None = None
    # members of ``metadata`` to keep; None keeps all, an empty tuple leaves ``metadata`` out
    metadata_fields: tuple[str, ...] | None = None
    # Pattern for records without an id, over ``path`` (the raw file relative to the raw folder), ``stem`` (the same without its suffix),
    # ``place`` (the file and the two folders above it, whatever the raw folder is) and ``row`` (0-based; every line of the file counts).
    # It depends on nothing else, so ids stay the same for any number of workers and shards.
    generated_id: str = "{stem}-{row:08d}"

    def __post_init__(self) -> None:
        if self.metadata_fields is not None:
            force_setattr(self, "metadata_fields", tuple(sorted(set(self.metadata_fields))))
        for name in ("id", "text", "source", "added", "created"):
            path = getattr(self, name)
            if path is not None and not all(str(path).split(".")):
                raise UsageError(
                    f"mapping: field {path!r} for {name!r} has an empty part; expected a name such as 'url' or 'meta.url'.",
                    field=path,
                )
        self._check_generated_id()

    def _check_generated_id(self) -> None:
        try:
            parts = {"path": "a.txt", "stem": "a", "place": "a.txt"}
            made = {self.generated_id.format(**parts, row=row) for row in (1, 2, 10)}
        except (KeyError, IndexError, ValueError, AttributeError):
            made = set()
        if len(made) != 3:
            raise UsageError(
                f"mapping: generated_id {self.generated_id!r} does not give each row of a file its own id; expected a pattern "
                "over {path}, {place}, {stem} and {row}, such as '{stem}-{row:08d}'.",
                generated_id=self.generated_id,
            )

    @property
    def is_default(self) -> bool:
        """True if all is left as it is, so that lines which are documents already stay as they are."""
        return self == FieldMapping()

    @property
    def source_field(self) -> str | None:
        """The field that holds the source, or None if `source_name` is meant for all records."""
        return self.source or (None if self.source_name is not None else "source")

    def canonical(self) -> str:
        """Return the mapping as JSON with sorted keys, for hashing."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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
            generated_id="{place}/{row}",  # as published: 2022-49/0000/de_head.json.gz/0
        ),
        "refinedweb": FieldMapping(text="content", created="timestamp", source_name="refinedweb"),
        "slimpajama": FieldMapping(source="meta.redpajama_set_name"),
        "wikipedia": FieldMapping(id="id", source_name="wikipedia"),
    }
)
"""Name of the raw data to its mapping."""


_SIBLINGS: Mapping[str, re.Pattern[str]] = {
    "redpajama_v2": re.compile(r"signals|minhash|duplicates|listings")
}
"""Words in the paths of published files that lie among the documents and hold something else."""


def is_sibling(preset_name: str, path: str) -> bool:
    """Tell whether a published data set has such a file besides its documents."""
    words = _SIBLINGS.get(preset_name)
    return words is not None and words.search(path) is not None


Combine = Literal["language", "bucket"]
"""Whose raw files share shards of documents: those of a language, or of a language and a bucket of perplexity."""

_GROUPS: Mapping[str, re.Pattern[str]] = {
    "redpajama_v2": re.compile(r"(?:.*/)?(?P<bucket>(?P<language>[a-z]+)_(?:head|middle|tail))\.[a-z.]+")
}
"""Names of published raw files, with the groups that they are of."""


def group_of(preset_name: str, combine: Combine, path: str) -> str:
    """Return the language, or language and bucket, of a published raw file, as its name says it.

    Raises `UsageError`: names of this mapping say nothing, or this one does not.
    """
    if preset_name not in _GROUPS:
        raise UsageError(
            f"combine={combine!r} with mapping={preset_name!r}; expected mapping={' or '.join(map(repr, _GROUPS))}, whose files are named by language. "
            "To put neighbouring files together: shard_bytes."
        )
    found = _GROUPS[preset_name].fullmatch(path)
    if found is None:
        raise UsageError(
            f"{path}: the name tells no language and bucket; expected one such as 2023-06/0000/en_head.json.gz. Leave the file out, or combine nothing."
        )
    return found[combine]


def place_of(url: str) -> str:
    """Return the name of a file and of the two folders above it."""
    return "/".join(url.split("/")[-3:])


def preset(name: str) -> FieldMapping:
    """Return the mapping of a published data set; raises `UsageError` for a name that is not in `PRESETS`."""
    if not isinstance(name, str) or name not in PRESETS:
        raise UsageError(
            f"mapping {name!r} is not known; expected one of {', '.join(PRESETS)}, or the fields one by one.",
            name=name,
        )
    return PRESETS[name]
