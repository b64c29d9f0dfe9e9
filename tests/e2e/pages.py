"""Pages of Markdown whose code is run: every block in its order, in a folder of the page's own.

A block with ``title="path"`` is that file. Blocks of ``python`` share their names; of ``sh`` and ``bash``, each line is a command: of
dolma-dask, in this process, or of Python on a file. A block of ``output`` is what the block before it has printed, ``...`` standing for
anything. What cannot be run here has a comment above it, ``<!-- not run: the reason -->``; all other kinds of blocks are only read.
"""

import contextlib
import io
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dolma_dask import cli

FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+?) -->\n)?"
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
RUN = ("python", "sh", "bash")
HOME = "/home/you"
LINES = 30
"""Outputs in pages are no longer."""


class Code(NamedTuple):
    """A block of a page."""

    kind: str
    code: str
    title: str = ""
    reason: str = ""  # why it is not run

    @property
    def is_run(self) -> bool:
        return self.kind in RUN and not self.title and not self.reason


def blocks_of(page: Path) -> list[Code]:
    """Return the blocks of code of a page."""
    found = FENCE.finditer(page.read_text())
    return [Code(one["kind"], one["code"], one["title"] or "", one["reason"] or "") for one in found]


def run_page(page: Path) -> dict[str, Any]:
    """Run a page in the present folder, and return the names that its Python has bound."""
    names: dict[str, Any] = {"__name__": "page"}
    for shown, printed in outputs_of(page, names):
        assert re.fullmatch(pattern_of(plain(shown)), plain(printed), re.DOTALL), (
            f"{page.name} shows\n{shown}\nand this was printed:\n{printed}"
        )
    return names


def outputs_of(page: Path, names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Run a page; yield what each block of output shows, and what was printed."""
    printed = ""
    for block in blocks_of(page):
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.code)
        elif block.kind == "output":
            yield block.code, printed
        elif block.is_run:
            printed = run(block, names, page.name)


def run(block: Code, names: dict[str, Any], page: str) -> str:
    """Run a block and return what it has printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.kind == "python":
            exec(compile(block.code, page, "exec"), names)
        else:
            for words in commands_of(block.code):
                call(words, page)
    return printed.getvalue()


def commands_of(code: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell block; comments are left out."""
    for line in code.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def call(words: list[str], page: str) -> None:
    program, *rest = words
    assert program in ("dolma-dask", "python"), f"{page}: {program} is not run; say why above the block"
    if program == "python":
        runpy.run_path(rest[0], run_name="__main__")
    else:
        assert cli.main(rest) == 0, (page, words)


def pattern_of(shown: str) -> str:
    """Return the pattern of what a page shows: ``...`` is anything."""
    return re.escape(shown).replace(re.escape("..."), ".*?")


def plain(text: str) -> str:
    """Return output without what differs from run to run and machine to machine: the folder, times and stored sizes."""
    text = text.replace(str(Path.cwd()), HOME)
    text = re.sub(
        r"((?:wall time|bytes in|bytes out|seconds) +)[\d.,]+( \w+)?$", r"\1", text, flags=re.MULTILINE
    )
    text = re.sub(r" +[\d.]+ s(?=  (?:done|would work))", "", text)  # of stages
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def store_outputs(page: Path) -> None:
    """Put what is printed into the page, in place of what it shows; of long outputs the beginning."""
    printed = [text.replace(str(Path.cwd()), HOME) for _, text in outputs_of(page, {"__name__": "page"})]
    block = re.compile(r"^```output\n.*?^```$", re.DOTALL | re.MULTILINE)
    page.write_text(block.sub(lambda _: f"```output\n{shortened(printed.pop(0))}```", page.read_text()))


def shortened(text: str) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(lines if len(lines) <= LINES else [*lines[: LINES - 1], "..."]) + "\n"
