"""The table of the Dolma toolkit's options in docs/dolma_toolkit.md, from their records; ``python tools/toolkit_table.py`` writes it anew."""

import re
from pathlib import Path

from dolma_dask.pipelines.dolma_options import CONFIGS
from dolma_dask.pipelines.dolma_rows import leaves

PAGE = Path(__file__).resolve().parents[1] / "docs/dolma_toolkit.md"

_MARKED = re.compile(r"(<!-- made by tools/toolkit_table.py -->\n).*(<!-- end -->)", re.DOTALL)


def tables() -> str:
    """Return a table for each command."""
    return "\n".join(line for name in CONFIGS for line in _table(name))


def with_tables(page: str) -> str:
    """Return a page with the tables in their place."""
    return _MARKED.sub(lambda found: f"{found[1]}{tables()}\n{found[2]}", page)


def _table(name: str) -> list[str]:
    rows = [
        f"| `{leaf.name}` | {leaf.kind}, {_code(leaf.shown_default)} | {_escaped(leaf.row.here)} |"
        for leaf in leaves(CONFIGS[name])
    ]
    return [f"### {name}", "", "| option | default | here |", "|---|---|---|", *rows, ""]


def _code(default: str) -> str:
    return default if default == "needed" else f"`{default}`"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
