"""Choice of the files that are fetched: lists of URLs, listings of shards, and folders of a store, filtered by what RedPajama-V2 says in its paths.

A published tree has ``<component>/<snapshot>/<shard>/<lang>_<bucket><suffix>`` for each component, and ``listings/<lang>-<snapshot>-<partition>.txt`` with lines
``<snapshot>/<shard>/<lang>_<bucket>``. What is fetched lies at the same path below the target; other files at the path of their URL.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from urllib.parse import unquote, urlsplit

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from dolma_dask.display import near_or_all
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.decompress import compression_of
from dolma_dask.io.objects import ObjectSource, shown
from dolma_dask.io.partial import partial
from dolma_dask.io.stores import check_url
from dolma_dask.io.stream import StoredFile, read_lines

COMPONENTS = {
    "documents": ".json.gz",
    "quality_signals": ".signals.json.gz",
    "minhash": ".minhash.parquet",
    "duplicates": ".duplicates.parquet",
}
"""Suffix of each component of RedPajama-V2."""

BUCKETS = ("head", "middle", "tail")

LANGUAGES = ("de", "en", "es", "fr", "it")

_PUBLISHED = re.compile(
    rf"(?:.*/)?(?P<path>(?P<components>{'|'.join(COMPONENTS)})/(?P<snapshots>[^/]+)/[^/]+/(?P<languages>[^/_]+)_(?P<buckets>[^/.]+)\.[^/]+)"
)
_SHARD = re.compile(r"[^/\s]+/[^/\s]+/[^/\s_]+_[^/\s.]+")
_LIST = re.compile(r".*\.(txt|lst)(\.gz|\.zst)?")
_REFUSED = re.compile(r"(^|/)\.|^_|\\|[\x00-\x1f\x7f]")

_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 1024
"""Limits of a name on file systems, and of a path in stores."""

_MAX_LINE_BYTES = 1 << 16
"""Maximum length of a line in a list; a URL is shorter."""


class Wanted(Struct, frozen=True):
    """An object, and the path below the target at which it will lie."""

    url: str
    path: str


class RedPajamaSelection(Struct, frozen=True):
    """Selection from RedPajama-V2; empty: all. A selection leaves out files that are none of it."""

    snapshots: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    components: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, given, known in (
            ("buckets", self.buckets, BUCKETS),
            ("components", self.components, tuple(COMPONENTS)),
        ):
            for word in given:
                if word not in known:
                    raise UsageError(f"{name} has {word!r}; {near_or_all(word, known)}")

    def keeps(self, path: str) -> bool:
        """Tell whether a path, or a URL, is selected."""
        if not any(asdict(self).values()):
            return True
        found = _PUBLISHED.fullmatch(path)
        return found is not None and all(
            not words or found[name] in words for name, words in asdict(self).items()
        )

    def listings(self) -> Iterator[str]:
        """Yield the paths of the listings that hold the selection."""
        buckets = self.buckets or BUCKETS[:2]
        partitions = ["head_middle"] * bool({*buckets} - {"tail"}) + ["tail"] * ("tail" in buckets)
        for snapshot in self.snapshots:
            for language in self.languages or LANGUAGES:
                yield from (f"listings/{language}-{snapshot}-{partition}.txt" for partition in partitions)


def wanted_of(
    source: ObjectSource, inputs: Sequence[str], base: str | None, selection: RedPajamaSelection
) -> list[Wanted]:
    """Return the objects of all inputs that are selected, each once, sorted by the UTF-8 bytes of their paths.

    Raises `UsageError`: nothing is selected; a line is neither a URL nor a shard; two URLs would become one file, or one outside of the target or hidden.
    """
    found = {one.url: one for item in inputs for one in _of_input(item, base, selection, source)}
    if not found:
        _check_there(inputs)
        asked = ", ".join(f"{name} {' '.join(words)}" for name, words in asdict(selection).items() if words)
        raise UsageError(
            f"{shown(inputs[0])}: nothing is selected; expected files{f' of {asked}' if asked else ''}. Look at the list, and at what it is filtered by."
        )
    kept = sorted(found.values(), key=lambda one: one.path.encode())
    _check_paths(kept)
    return kept


def _check_there(inputs: Sequence[str]) -> None:
    for url in map(files.normalize, inputs):
        if files.is_local(url) and not files.local_path(url).exists():
            raise UsageError(
                f"{url}: no such folder or file; expected a tree with listings, a list of URLs, or a store. Look at its path."
            )


def _check_paths(wanted: Sequence[Wanted]) -> None:
    """Check that each object becomes a file of its own, and none a folder of others."""
    by_path: dict[str, Wanted] = {}
    for one in wanted:
        if other := by_path.get(one.path):
            raise UsageError(
                f"{shown(one.url)} and {shown(other.url)} would both become {one.path}; expected a file for each. Fetch them into folders of their own, or "
                "leave one out."
            )
        by_path[one.path] = one
    folders = set(by_path)
    while folders := {path.rpartition("/")[0] for path in folders} - {""}:
        for folder in folders & by_path.keys():
            raise UsageError(
                f"{shown(by_path[folder].url)} would become {folder}, which is also the folder of others; expected a file. Leave one of them out."
            )


def _of_input(
    item: str, base: str | None, selection: RedPajamaSelection, source: ObjectSource
) -> Iterator[Wanted]:
    url = files.normalize(item)
    name = shown(url).rpartition("/")[2]
    is_file = files.local_path(url).is_file() if files.is_local(url) else layout.suffix_of(name) is not None
    if _LIST.fullmatch(name):
        yield from _of_list(url, base, selection, source)
    elif is_file:
        yield from _selected(url, base, selection)
    else:
        yield from _of_root(url, selection, source)


def _selected(url: str, base: str | None, selection: RedPajamaSelection) -> Iterator[Wanted]:
    path = _path_of(url, base)
    if selection.keeps(path):
        yield Wanted(url, path)


def _of_list(
    url: str, base: str | None, selection: RedPajamaSelection, source: ObjectSource
) -> Iterator[Wanted]:
    """Yield the objects of a list; lines of a listing are shards of the tree that it lies in, or of `base`."""
    tree = base or (files.parent(files.parent(url)) if "/listings/" in url else None)
    for number, text in enumerate(_lines(source, url), 1):
        line = text.strip()
        if not line or line.startswith("#"):
            continue
        if "://" in line or line.startswith("/"):
            if selection.keeps(line):
                _check_line(line, f"{shown(url)}, line {number}", base)
                yield from _selected(line, base, selection)
        elif tree and _SHARD.fullmatch(line):
            yield from _of_shard(tree, line, selection)
        else:
            expected = "a URL" if tree else "a URL, or with --base also the shard of a listing"
            raise UsageError(
                f"{shown(url)}, line {number}: {line[:100]!r}; expected {expected}, such as 2023-06/0000/en_head."
            )


def _lines(source: ObjectSource, url: str) -> Iterator[str]:
    """Yield the lines of a list behind a path or URL; a byte order mark is no part of them.

    Raises `UsageError`: there is no such list, or it is no text of lines.
    """
    try:
        with _on_this_machine(source, url) as path, closing(StoredFile(path)) as stored:
            for block in read_lines(stored, compression_of(shown(url)), max_record_bytes=_MAX_LINE_BYTES):
                if max(block.oversize_bytes, np.diff(block.starts).max(initial=0)) > _MAX_LINE_BYTES:
                    raise UsageError(
                        f"{shown(url)}: a line of more than {_MAX_LINE_BYTES:,} bytes; expected a list of URLs."
                    )
                for row, line in enumerate(block, block.first_row):
                    yield line.decode("utf-8" if row else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown(url)}: not UTF-8 ({error.reason}); expected a list of URLs.") from None
    except FileNotFoundError:
        raise UsageError(
            f"{shown(url)}: there is no such list; expected a list of URLs, or a listing of the tree. Look at the address, and at the spelling of "
            "snapshots and languages.",
            url=shown(url),
        ) from None


@contextmanager
def _on_this_machine(source: ObjectSource, url: str) -> Iterator[str]:
    """Yield the path of a list, which is fetched if it lies elsewhere."""
    if not files.is_local(url):
        with partial(url) as part:
            part.receive(source, url)
            yield part.url
    elif files.stat(url) is None:
        raise FileNotFoundError(url)
    else:
        yield url


def _check_line(line: str, place: str, base: str | None) -> None:
    """Check that a list names what may be fetched: files of this machine only below a `base` that is one of its folders, and nobody a URL without a host."""
    check_url(line)
    if files.is_local(line) and not (base and files.is_local(base)):
        raise UsageError(
            f"{place}: {line[:100]!r} is a path of this machine; expected a URL. If files of this machine are meant, name their folder in --base."
        )
    try:
        parts = urlsplit(line)
        is_whole = not files.is_web(line) or (bool(parts.hostname) and parts.port != 0)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise UsageError(
            f"{place}: {line[:100]!r} names no host; expected a URL such as https://host/file.json.gz."
        )


def _of_shard(root: str, shard: str, selection: RedPajamaSelection) -> Iterator[Wanted]:
    buckets = selection.buckets or BUCKETS[:2]
    if not shard.endswith(tuple(f"_{bucket}" for bucket in buckets)):
        return
    for component, suffix in COMPONENTS.items():
        path = f"{component}/{shard}{suffix}"
        if selection.keeps(path):
            yield Wanted(files.join(root, path), path)


def _of_root(root: str, selection: RedPajamaSelection, source: ObjectSource) -> Iterator[Wanted]:
    """Yield the objects of a published tree: by its listings, or by those of its folders where a store has no listings."""
    if files.is_web(root) or (selection.snapshots and "listings" in files.list_folders(root)):
        if not selection.snapshots:
            raise UsageError(
                f"{root}: a tree in the web, which cannot be listed; expected the snapshots to fetch, such as --snapshots 2023-06, or the address of a "
                "list of URLs, whose name ends in .txt."
            )
        for path in selection.listings():
            yield from _of_list(files.join(root, path), root, selection, source)
        return
    for info in files.list_files(root):
        if selection.keeps(info.path) and not info.path.startswith(("_", "listings/")):
            yield Wanted(files.join(root, info.path), _checked(info.path, root))


def _path_of(url: str, base: str | None) -> str:
    """Return where an object lies below the target: as it lies in a published tree, below `base`, or below its host."""
    parts = urlsplit(url)
    path = unquote(parts.path) if "://" in url else url
    if base is not None:
        if not url.startswith(f"{base.rstrip('/')}/"):
            raise UsageError(f"{shown(url)} does not lie below {base}; expected URLs below --base.")
        return _checked(unquote(shown(url))[len(unquote(base.rstrip("/"))) + 1 :], url)
    found = _PUBLISHED.fullmatch(path)
    return _checked(found["path"] if found else path.lstrip("/"), url)


def _checked(path: str, url: str) -> str:
    if max(map(len, path.encode().split(b"/"))) > _MAX_NAME_BYTES or len(path.encode()) > _MAX_PATH_BYTES:
        raise UsageError(
            f"{shown(url)[:300]}...: would become a file with a path of {len(path.encode()):,} bytes; expected at most {_MAX_PATH_BYTES:,}, and "
            f"{_MAX_NAME_BYTES} in a name. Leave it out of the list."
        )
    if not path or path.endswith("/") or not files.is_inside(path) or _REFUSED.search(path):
        raise UsageError(
            f"{shown(url)}: would become the file {path!r}; expected a path below the target that is neither hidden nor begins with '_', without control characters. Leave it out of the "
            "list, or name the folder that it is to be seen from in --base."
        )
    return path
