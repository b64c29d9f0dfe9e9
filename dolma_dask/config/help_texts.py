"""Docstrings as a terminal shows them: every argument by itself, lines as wide as the window, notes below the options.

Docstrings are broken at 110 characters and put arguments together that are explained together; help texts must be neither.
"""

import inspect
import re

_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.*)$")
_COLUMNS = re.compile(r"\S {2,}\S")


def help_text(doc: str) -> str:
    """Return a docstring with each argument alone and its description in one line."""
    sections = _sections(inspect.cleandoc(doc))
    parameters = sections.get("Parameters")
    if parameters is None:
        return inspect.cleandoc(doc)
    entries: list[tuple[list[str], str, list[str]]] = []
    for line in parameters.splitlines():
        found = _ENTRY.match(line)
        if found:
            entries.append((found[1].split(", "), found[2], []))
        elif entries:
            entries[-1][2].append(line.strip())
    lines = [
        line
        for names, kind, text in entries
        for name in names
        for line in (f"{name} : {kind}", f"    {' '.join(text)}")
    ]
    return "\n".join([flowing(sections[""]), "", "Parameters", "----------", *lines])


def notes(doc: str) -> str:
    """Return the notes of a docstring, empty if there are none."""
    return flowing(_sections(inspect.cleandoc(doc)).get("Notes", ""))


def _sections(doc: str) -> dict[str, str]:
    """Return the sections of a docstring by heading; the first has none."""
    parts = _HEADING.split(doc)
    return {
        "": parts[0].strip(),
        **{parts[at]: parts[at + 1].strip() for at in range(1, len(parts), 2)},
    }


def flowing(text: str) -> str:
    """Return a text with each paragraph in one line; lines with columns stay as they are."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        if any(_COLUMNS.search(line) for line in lines):
            found.append(paragraph)
        else:
            found.append(" ".join(line.strip() for line in lines))
    return "\n\n".join(found).strip()
