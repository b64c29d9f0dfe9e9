"""Execute notebooks and store them with their outputs, and the gallery that is made of these.

    python tools/notebooks.py                     all of them
    python tools/notebooks.py 01_look_at_a_corpus  one
    python tools/notebooks.py --check             name those whose outputs are old; exit status 1 if there are any

Each runs in a temporary folder. What is stored is read on the web: pictures, small tables and text. Nothing in it tells on which machine, where or when it was made,
and nothing in it is a script; `complaints` is the rule, and a notebook that breaks it is not stored. Outputs are old when a cell or a content version of
the package has changed since: digests of both stand in the metadata. Numbers come from the Python packages of this machine, and may differ on another.
"""

import argparse
import base64
import hashlib
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

from dolma_dask.progress import MARK

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
GALLERY = ROOT / "docs/gallery.md"
IMAGES = ROOT / "docs/images"

PLACE = "demo"
"""Stands in outputs for the temporary folder of a notebook."""

MAX_BYTES = 400_000
"""Size of a stored notebook."""

CELL_SECONDS = 300

VERSION = re.compile(r"\b((?:\w*VERSION(?:: \w+)? = |version=)\d+)")
LEFT_OUT = (
    (re.compile(r"<tr>(?:(?!</tr>).)*?\bwall time\b.*?</tr>", re.DOTALL), ""),
    (re.compile(r"^[^\n<]*\bwall time\b[^\n<]*\n?", re.MULTILINE), ""),
)
FORBIDDEN = {
    "a script": re.compile(r"<script|<iframe|javascript:|\son\w+=[\"']", re.IGNORECASE),
    "an absolute path": re.compile(r"(?<![\w.])/(?:tmp|home|root|Users|private|work|opt|mnt|var|scratch)/"),
    "an address": re.compile(
        r"\b(?:tcp|tls|inproc|ucx)://(?!ADDRESS)|\blocalhost\b|\b\d+\.\d+\.\d+\.\d+:\d+"
    ),
    "a time": re.compile(r"(?<!#SBATCH -t )\b\d\d:\d\d:\d\d\b|\bwall time\b|\d [MkG]?B/s\b"),
}


def execute(path: Path, **environment: str) -> NotebookNode:
    """Run all cells of a notebook in a folder that is gone afterwards, with further environment variables, and return it with clean outputs."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="dolma-dask-notebook-") as folder:
        own = {"TMPDIR": folder, "IPYTHONDIR": folder, "DOLMA_DASK_STATIC": "1"}
        run_cells(book, folder, CELL_SECONDS, os.environ | own | environment)
        clean(book, folder)
    return book


def run_cells(book: NotebookNode, folder: str, cell_seconds: int, environment: Mapping[str, str]) -> None:
    """Run the cells of a notebook in a folder, with an environment.

    The kernel is spoken to through sockets that are files: a port that is free when it is chosen may be taken before the kernel opens it.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-") as sockets:
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/socket")
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(
            book,
            km=kernel,
            timeout=cell_seconds,
            resources=resources,
            extra_arguments=["--log-level=ERROR"],
        )
        client.execute(env=dict(environment))


def clean(book: NotebookNode, folder: str) -> None:
    """Take out of the outputs what belongs to this run or this machine, and what does not show on the web."""
    book.metadata = {name: book.metadata[name] for name in ("kernelspec",) if name in book.metadata}
    book.metadata["language_info"] = {"name": "python"}
    names = {socket.gethostname(): "host", str(Path.home()): "~"} if len(str(Path.home())) > 1 else {}
    rules = [(re.compile(re.escape(folder) + r"/[\w-]+"), PLACE)]
    rules += [(re.compile(rf"(?<!\w){re.escape(name)}\b"), short) for name, short in names.items()]
    for cell in book.cells:
        cell.metadata = {name: cell.metadata[name] for name in ("tags", "alt") if name in cell.metadata}
        if cell.cell_type == "code":
            alt = cell.metadata.get("alt", "")
            cell.outputs = [kept for output in cell.outputs if (kept := _cleaned(output, rules, alt))]


def _cleaned(
    output: NotebookNode, rules: Sequence[tuple[re.Pattern[str], str]], alt: str
) -> NotebookNode | None:
    """Return what is kept of an output; `alt` describes its picture where the picture does not bring a description."""
    if output.output_type == "stream":
        if output.name == "stderr":
            print(f"left out, written to standard error: {output.text}", file=sys.stderr)
            return None
        output.text = _shortened(output.text, rules)
        return output if output.text.strip() else None
    data = {
        kind: output.data[kind] for kind in ("image/png", "text/html", "text/plain") if kind in output.data
    }
    if data.get("text/html", "").startswith(f"<div class='{MARK}'"):
        return None
    if "image/png" in data or FORBIDDEN["a script"].search(data.get("text/html", "")):
        data.pop("text/html", None)
    for kind in data.keys() - {"image/png"}:
        data[kind] = _shortened(data[kind], rules)
    picture = {"alt": alt, **output.metadata.get("image/png", {})}
    output.metadata = {"image/png": picture} if "image/png" in data else {}
    output.data = data
    output.pop("transient", None)
    return output if any(value.strip() for value in data.values()) else None


def _shortened(text: str, rules: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, short in (*rules, *LEFT_OUT):
        text = pattern.sub(short, text)
    return text


def complaints(book: NotebookNode) -> list[str]:
    """Return what a stored notebook may not hold."""
    found = []
    for number, cell in enumerate(book.cells):
        outputs = cell.get("outputs", ())
        if any("image/png" in output.get("data", {}) and not alt_of(output) for output in outputs):
            found.append(
                f"cell {number}: its picture has no description; put one into the cell's metadata, as alt"
            )
        for text in map(_text, outputs):
            found += [
                f"cell {number}: its output holds {what}: {text[max(0, hit.start() - 40) : hit.end() + 40]!r}"
                for what, pattern in (FORBIDDEN | _names_of_this_machine()).items()
                if (hit := pattern.search(text))
            ]
    if (size := len(nbformat.writes(book))) > MAX_BYTES:
        found.append(f"{size:,} bytes; expected {MAX_BYTES:,} at most: show less, or smaller pictures")
    return found


def _names_of_this_machine() -> dict[str, re.Pattern[str]]:
    return {"the name of this host": re.compile(rf"\b{re.escape(socket.gethostname())}\b")}


def alt_of(output: NotebookNode) -> str:
    """Return the description of the picture of an output, in place of which it is read; empty if it has none."""
    found: str = output.get("metadata", {}).get("image/png", {}).get("alt", "")
    return found


def _text(output: NotebookNode) -> str:
    """Return all that can be read in an output."""
    data = {**output.get("data", {}), "text": output.get("text", ""), "evalue": output.get("evalue", "")}
    data["alt"] = alt_of(output)
    return "\n".join(value for kind, value in data.items() if not kind.startswith("image/"))


def digests(book: NotebookNode) -> dict[str, str]:
    """Return digests of what the outputs are made from: the cells, and all versions that the package raises with its content."""
    cells = [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in book.cells]
    return {"cells": _digest(cells), "versions": _digest(_versions())}


@cache
def _versions() -> list[str]:
    sources = (path.read_text() for path in (ROOT / "dolma_dask").rglob("*.py"))
    return sorted(version for source in sources for version in VERSION.findall(source))


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def changes(path: Path) -> list[str]:
    """Return what has changed since the outputs of a notebook were stored: its cells, or the content versions of the package."""
    book = nbformat.read(path, as_version=4)
    stored = book.metadata.get("dolma_dask", {})
    return [name for name, digest in digests(book).items() if stored.get(name) != digest]


def store(path: Path) -> None:
    """Execute a notebook and write it, with its digests; one whose outputs may not be shown stays as it was."""
    book = execute(path)
    if found := complaints(book):
        raise SystemExit(f"{path.name} was not stored.\n" + "\n".join(found))
    book.metadata["dolma_dask"] = digests(book)
    nbformat.validate(book)
    path.write_text(nbformat.writes(book) + "\n")


def named(names: Sequence[str]) -> list[Path]:
    """Return the notebooks of these names; all without any."""
    known = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    if unknown := [name for name in names if Path(name).stem not in known]:
        raise SystemExit(f"no notebook {', '.join(unknown)}; expected one of {', '.join(known)}.")
    return [known[Path(name).stem] for name in names] or list(known.values())


def write_gallery() -> None:
    """Write the page of the gallery, and the picture of each notebook: the first that it shows, or that of its cell with the tag `gallery`."""
    IMAGES.mkdir(exist_ok=True)
    for path in named(()):
        if (picture := _picture(nbformat.read(path, as_version=4))) is not None:
            (IMAGES / f"gallery-{path.stem}.png").write_bytes(picture)
    GALLERY.write_text(gallery())


def gallery() -> str:
    """Return the page of the gallery: each notebook's title, picture and first paragraph."""
    return "\n".join(["# Gallery", "", GALLERY_START, *map(_entry, named(())), ""])


GALLERY_START = """Each picture comes from a notebook that runs as it stands, on text of your own Python installation: `make lab` opens them in JupyterLab.

![A notebook in JupyterLab, with Dask's pane beside it and two plots of the dashboard](images/jupyterlab.png)"""


def _entry(path: Path) -> str:
    title, _, text = nbformat.read(path, as_version=4).cells[0].source.partition("\n")
    title, first = title.lstrip("# "), text.strip().partition("\n\n")[0].replace("\n", " ")
    name = f"gallery-{path.stem}.png"
    picture = f"\n![A figure of the notebook {title}](images/{name})\n" if (IMAGES / name).exists() else ""
    return f"\n## [{title}](../notebooks/{path.name})\n\n{first}\n{picture}".rstrip()


def _picture(book: NotebookNode) -> bytes | None:
    chosen = [cell for cell in book.cells if "gallery" in cell.metadata.get("tags", [])]
    for cell in [*chosen, *book.cells]:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                return base64.b64decode(output.data["image/png"])
    return None


def main() -> None:
    """Store or check the notebooks that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="of notebooks; all without any")
    parser.add_argument("--check", action="store_true", help="only name those whose outputs are old")
    options = parser.parse_args()
    paths = named(options.names)
    if options.check:
        old = {path.name: found for path in paths if (found := changes(path))}
        for name, found in old.items():
            print(
                f"{name}: {' and '.join(found)} have changed since its outputs were stored; run: make notebooks"
            )
        sys.exit(bool(old))
    for path in paths:
        print(path.stem, flush=True)
        store(path)
    write_gallery()


if __name__ == "__main__":
    main()
