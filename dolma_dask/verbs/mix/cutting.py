"""Cutting and naming of the output files of a mix."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dolma_dask.errors import UsageError
from dolma_dask.formats.layout import DOCUMENT_SUFFIXES, FileFormat
from dolma_dask.writers.jsonl import MEMBER_BYTES

PACKING_VERSION = 1
"""Raised whenever files that are cut by size, or shuffled, get other bytes for the same rows."""

DEFAULT_SIZE = 2 << 30
"""Stored bytes of an output file at most, by default: that of the Dolma toolkit."""

MEMBERS_PER_FILE = 16
"""Members that a full file consists of at least, so that little room is left at its end."""

LEAST_MEMBER = 1 << 10

_SUFFIX: Mapping[FileFormat, str] = {
    "jsonl.gz": ".json.gz",
    "jsonl.zst": ".json.zst",
    "jsonl": ".json",
    "parquet": "",
}
"""Suffixes that the Dolma toolkit gives the last file of a stream."""


@dataclass(frozen=True)
class FilePacking:
    """Rule by which output files are cut and named."""

    prefix: str  # of their paths, with the folder and the name: ``documents/part``
    file_format: FileFormat  # not Parquet
    max_bytes: int = DEFAULT_SIZE  # stored bytes of a file at most
    seed: int | None = None  # of a shuffle; None: in the order of shards and rows
    by_inputs: bool = False
    """Cut as the Dolma toolkit does: by the stored sizes of the inputs, which are not divided, with
    another suffix for the last file."""

    def __post_init__(self) -> None:
        if self.file_format == "parquet":
            raise UsageError(
                "files of a given size, and shuffled ones, are put together from members; expected a format of JSON lines, such as jsonl.gz."
            )
        if isinstance(self.max_bytes, bool) or not isinstance(self.max_bytes, int) or self.max_bytes < 1:
            raise UsageError(f"max_size={self.max_bytes!r}; expected stored bytes of a file, 1 or more.")

    @property
    def member_bytes(self) -> int:
        """Text of a member."""
        return min(max(self.max_bytes // MEMBERS_PER_FILE, LEAST_MEMBER), MEMBER_BYTES)

    def path(self, number: int, count: int) -> str:
        """Return the path of an output file."""
        is_last = self.by_inputs and number == count - 1
        suffix = _SUFFIX[self.file_format] if is_last else f".{self.file_format}"
        return f"{self.prefix}-{number:04d}{suffix}"

    def is_output(self, path: str) -> bool:
        """Tell whether a path is one that output files of this name have, whatever their number and format."""
        number, _, suffix = path.removeprefix(f"{self.prefix}-").partition(".")
        is_named_so = path.startswith(f"{self.prefix}-") and number.isdigit()
        return is_named_so and f".{suffix}" in (*DOCUMENT_SUFFIXES, *_SUFFIX.values())

    def params(self) -> dict[str, Any]:
        """Return what decides the output."""
        return {
            "prefix": self.prefix,
            "format": self.file_format,
            "max_bytes": self.max_bytes,
            "shuffle": self.seed,
            "by_inputs": self.by_inputs,
        }
