"""Files that a path, a URL or a shell pattern stands for."""

import re
from collections.abc import Iterator, Sequence

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo

MAGIC = re.compile(r"[*?\[]")
"""Characters that make a pattern of a path."""


def matches(pattern: str) -> Iterator[tuple[str, FileInfo]]:
    """Yield the files that a path or pattern stands for, sorted, with what the listing says of them; a folder stands for all that is in it."""
    url = files.normalize(pattern)
    magic = MAGIC.search(url)
    if magic is None:
        info = files.stat(url)
        if info is not None:
            yield url, info
        else:
            yield from ((files.join(url, inside.path), inside) for inside in files.list_files(url))
        return
    base = url[: magic.start()].rpartition("/")[0]
    matching = re.compile(_regex(url[len(base) + 1 :]))
    for info in files.list_files(base):
        if matching.fullmatch(info.path):
            yield f"{base}/{info.path}", info


def base_of(pattern: str) -> str:
    """Return the folder that a path or pattern begins at: a folder itself, that of a file, or the last one before what may differ."""
    url = files.normalize(pattern)
    magic = MAGIC.search(url)
    if magic is not None:
        return url[: magic.start()].rpartition("/")[0]
    return url if files.stat(url) is None else files.parent(url)


def looks_into(pattern: str, folder: str) -> bool:
    """Tell whether a path or pattern stands for files of a folder, too, so that a second look would find what was written there."""
    url, base = files.normalize(pattern), base_of(pattern)
    place, above = f"{files.resolved(folder)}/", f"{files.resolved(base)}/"
    if not place.startswith(above):
        return False
    if MAGIC.search(url) is None:
        return base == url
    inside, _, name = f"/{url[len(base) + 1 :]}".rpartition("/")
    folders = f"{inside}/**/" if "**" in name else f"{inside}/"
    return re.fullmatch(_regex(folders.lstrip("/")), place.removeprefix(above)) is not None


def without_files(patterns: Sequence[str], folder: str) -> str:
    """Return an error text about patterns that match no file, or about none at all, where files of a `folder` of datasets are expected."""
    expected = f"expected paths or patterns such as corpus/{folder}/*.jsonl.gz."
    if not patterns:
        return f"no file is named; {expected}"
    return f"no file matches {', '.join(patterns)}; {expected} Correct it, or leave it out if nothing is meant by it."


def _regex(pattern: str) -> str:
    """Return a shell pattern as a regular expression; ``*`` stays in its folder, ``**`` does not."""
    parts = []
    for piece in re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|[^*?\[]+|\[", pattern):
        known = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece)
        if known is None:
            is_class = piece.startswith("[") and len(piece) > 1
            known = "[" + piece[1:].replace("!", "^", piece[1] == "!") if is_class else re.escape(piece)
        parts.append(known)
    return "".join(parts)


_HINTS = {layout.DOCUMENTS: "; where mix is to write them, say output.path: .../documents"}


def split(url: str, folder: str) -> tuple[str, str]:
    """Return the root of the dataset that a file lies in, and its path below a `folder` of that dataset.

    Raises `UsageError`: it lies in no such folder.
    """
    root, found, path = url.rpartition(f"/{folder}/")
    if not found:
        raise UsageError(
            f"{url} does not lie below a folder {folder!r}; expected <dataset>/{folder}/..., so that documents and attributes find each other: here as in the "
            "Dolma toolkit, attributes lie where attributes/NAME stands in place of documents. "
            f"Move the files there, or name others{_HINTS.get(folder, '')}."
        )
    return root, path
