"""What a raw file's name says about it, and what its documents are called.

Only the name is looked at, never the content: the plan of a conversion is a pure function of the listing.
"""

from dataclasses import dataclass
from typing import Literal

from dolma_dask.errors import UsageError
from dolma_dask.io.stream import Compression, compression_of

Kind = Literal["jsonl", "parquet", "text", "tar"]

_COMPRESSED = (".gz", ".zst", ".zstd")
_KINDS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".rst": "text",
    ".parquet": "parquet",
    ".tar": "tar",
}
_CONTAINERS = ("parquet", "tar")  # compressed inside; `.jsonl.zst.tar` is a tar of .jsonl.zst


@dataclass(frozen=True)
class RawName:
    """A file name in parts.

    Attributes
    ----------
    stem : str
        The path without what its suffix says about format and compression.
    kind : {"jsonl", "parquet", "text", "tar"}
        How its records are stored.
    compression : {"gzip", "zstd"} or None
        How the file as a whole is compressed.
    """

    stem: str
    kind: Kind
    compression: Compression | None


def split_suffix(path: str) -> RawName:
    """Read kind and compression off a file name; upper and lower case are the same.

    Parameters
    ----------
    path : str
        A path, such as ``en/c4-train.00000-of-01024.json.gz``.

    Raises
    ------
    UsageError
        The suffix is not known.
    """
    lower = path.lower()
    packed = next((suffix for suffix in _COMPRESSED if lower.endswith(suffix)), "")
    bare = path[: len(path) - len(packed)]
    for suffix, kind in _KINDS.items():
        if bare.lower().endswith(suffix) and not (packed and kind in _CONTAINERS):
            return RawName(_stem(bare[: -len(suffix)], kind), kind, compression_of(lower))
    raise UsageError(
        f"{path}: unknown suffix; expected one of {', '.join(known_suffixes())}. Rename the file, or leave it out.",
        path=path,
    )


def _stem(stem: str, kind: Kind) -> str:
    """Drop the suffixes of the members from the name of a tar."""
    if kind != "tar":
        return stem
    for suffix in (*_COMPRESSED, ".jsonl", ".json", ".ndjson", ".txt"):
        if stem.lower().endswith(suffix) and len(stem) > len(suffix):
            stem = stem[: -len(suffix)]
    return stem


def known_suffixes() -> tuple[str, ...]:
    """All suffixes that `split_suffix` knows, for error texts and help."""
    plain = tuple(_KINDS)
    packed = tuple(
        suffix + last for suffix, kind in _KINDS.items() if kind not in _CONTAINERS for last in _COMPRESSED
    )
    return (*plain, *packed)


def document_path(path: str) -> str:
    """Return where the documents of a raw file go, below ``documents/``: the same path with the suffix ``.jsonl.gz``.

    Parameters
    ----------
    path : str
        The raw file relative to the raw folder.
    """
    return f"{split_suffix(path).stem}.jsonl.gz"
