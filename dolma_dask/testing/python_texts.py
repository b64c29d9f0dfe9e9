"""Texts that every Python installation holds: descriptions, licences, docstrings, help topics.

Found through `importlib.metadata` and `ast`; no module is imported. Hosts of links become example.org, so that pages and notebooks which
show these texts can be published and lead to nobody's site. Everything comes in a fixed order and is cut at a fixed number of
bytes, so that the same installation gives the same texts.
"""

import ast
import importlib.metadata as metadata
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

MIN_DOCSTRING_CHARACTERS = 400
"""Shorter docstrings are rarely prose."""

MAX_CHARACTERS = 300_000
"""A longer text, such as the licences of everything that a wheel bundles, would outweigh all others."""

DOCUMENTED_PACKAGES = ("numpy", "pandas", "dask", "distributed", "bokeh", "tornado", "fsspec")
"""Dependencies of this project with much documentation in their code; the first count most, should the limit be reached."""

_LINK = re.compile(r"\b(https?://)[^\s/<>()\[\]{}\"'`|]+")
_LICENCE = re.compile(r"(licen[cs]es?|copying|copyright|notice|authors)([-_.].*)?", re.IGNORECASE)
_NO_TEXT = frozenset((".py", ".pyi", ".pyc", ".so", ".json", ".html", ".toml", ".yaml"))
_NO_PROSE = frozenset(("site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "encodings"))
_LONG_STRING = re.compile(rb'"""[^"]{150}')  # a quick look before the parser's slow one


class Text(Struct, frozen=True):
    """A text, and what else its raw record tells: where it comes from and what it is called."""

    text: str
    about: Mapping[str, Any]


def distributions() -> list[metadata.Distribution]:
    """Return the installed distributions, each name once, sorted by normalised name."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(_normalised(name), distribution)
    return [found[name] for name in sorted(found)]


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def capped(texts: Iterable[Text], max_bytes: int) -> list[Text]:
    """Take `texts` in order, with other hosts in links, until `max_bytes` of UTF-8 are reached; empty and overlong ones are passed over."""
    taken: list[Text] = []
    size = 0
    for item in texts:
        if not item.text.strip() or len(item.text) > MAX_CHARACTERS:
            continue
        shown = replace(item, text=_LINK.sub(r"\1example.org", item.text))
        size += len(shown.text.encode())
        if size > max_bytes:
            break
        taken.append(shown)
    return taken


def descriptions() -> Iterator[Text]:
    """Yield the long descriptions of the installed distributions: the body of their METADATA."""
    for distribution in distributions():
        content = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        head, _, body = content.replace("\r\n", "\n").partition("\n\n")
        fields = HeaderParser().parsestr(head)
        about = {name: str(fields[name] or "") for name in ("Name", "Version", "Summary", "Requires-Python")}
        yield Text(_printable(body.strip()), about)


def _printable(text: str) -> str:
    """Drop what UTF-8 cannot hold: `importlib.metadata` reads invalid bytes as lone surrogates on some versions."""
    return text.encode(errors="replace").decode()


def licences() -> Iterator[Text]:
    """Yield the licence files of the installed distributions, copies included; files that are not UTF-8 are passed over."""
    taken: set[str] = set()
    for distribution in distributions():
        name = _normalised(distribution.metadata["Name"])
        for file in sorted(distribution.files or (), key=str):
            if not _LICENCE.fullmatch(file.name) or file.suffix.lower() in _NO_TEXT:
                continue
            path = _licence_path(name, file.parts)
            text = _read_text(Path(str(file.locate())))
            if text is not None and path not in taken:
                taken.add(path)
                yield Text(text, {"path": path})


def _licence_path(name: str, parts: tuple[str, ...]) -> str:
    """``numpy-2.4.dist-info/licenses/LICENSE`` of numpy becomes ``numpy/LICENSE``."""
    inner = [part.lstrip(".") for part in parts if part.strip(".") and part != "licenses"]
    if inner[0].endswith((".dist-info", ".egg-info")):
        del inner[0]
    return "/".join([name, *inner])


def _read_text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def standard_library_docstrings() -> Iterator[Text]:
    """Yield the long docstrings of the standard library, tests and tools left out, in the order of paths and lines."""
    root = Path(sysconfig.get_path("stdlib"))
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _NO_PROSE and name.isidentifier())
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                yield from _docstrings("python", path.relative_to(root).parts, path)


def package_docstrings() -> Iterator[Text]:
    """Yield the long docstrings of `DOCUMENTED_PACKAGES`, as far as they are installed."""
    installed = {_normalised(item.metadata["Name"]): item for item in distributions()}
    for package in DOCUMENTED_PACKAGES:
        files = installed[package].files if package in installed else None
        for file in sorted(files or (), key=str):
            if file.suffix == ".py" and file.parts[0] == package and not _NO_PROSE.intersection(file.parts):
                yield from _docstrings(package, file.parts, Path(str(file.locate())))


def _docstrings(package: str, parts: tuple[str, ...], path: Path) -> Iterator[Text]:
    try:
        code = path.read_bytes()
    except OSError:
        return
    if not _LONG_STRING.search(code):
        return  # parsing is what costs
    tree = _parse(code)
    if tree is None:
        return
    module = ".".join(parts).removesuffix(".py").removesuffix(".__init__")
    for name, node in _definitions(tree, ""):
        text = ast.get_docstring(node) or ""
        if len(text) >= MIN_DOCSTRING_CHARACTERS:
            line = getattr(node, "lineno", 1)
            yield Text(_printable(text), {"package": package, "module": module, "name": name, "line": line})


def _parse(code: bytes) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's code
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError):
            return None


_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(node: _Definition, name: str) -> Iterator[tuple[str, _Definition]]:
    """Yield `node` and the classes and functions in it, conditional ones included; expressions are not walked."""
    yield name, node
    waiting: list[ast.stmt] = list(reversed(node.body))
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _definitions(inner, f"{name}.{inner.name}".lstrip("."))
        elif isinstance(inner, ast.If | ast.Try):
            waiting += reversed([*inner.body, *inner.orelse])


def topics() -> Iterator[Text]:
    """Yield the help texts of the language reference, the data behind ``help("topics")``."""
    path = Path(sysconfig.get_path("stdlib"), "pydoc_data", "topics.py")
    tree = _parse(path.read_bytes()) if path.is_file() else None
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)] if tree else []
    found = next((value for value in values if isinstance(value, ast.Dict)), None)
    for title, text in sorted(ast.literal_eval(found).items()) if found else ():
        yield Text(_printable(text.strip()), {"title": title})
