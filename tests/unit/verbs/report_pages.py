"""A call of report that reads its page back, and documents of even and odd sources."""

import json
from pathlib import Path
from typing import Any

import dolma_dask as dk

LENGTH = "char_length_v1__char_length_v1__length"
QUIET: dict[str, Any] = {"progress": False, "scheduler": "synchronous"}
ODD: dict[str, Any] = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5}


def drawn(data: Any) -> str:
    """Stand for `page.render`, which takes a second and has tests of its own."""
    from dolma_dask.pages import page  # brings Bokeh along

    return f'<meta content="dolma_dask {data.version}">{page.write_json(data).decode()}'


def page_of(dataset: object, name: str = "page", **options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the page of a dataset says, and the notes of the summary; the page lies beside the dataset."""
    to = Path(str(dataset)).with_name(f"{name}.html")
    summary = dk.report(str(dataset), to=str(to), **{**QUIET, **options})
    return json.loads(to.with_suffix(".json").read_text()), summary.notes


def stages(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the last stage of each verb."""
    return {row["verb"]: row for row in content["stages"]}


def lines_of(numbers: range) -> list[str]:
    """Return documents of 1 to 17 words, of the sources even and odd."""
    texts = [f"{'wörd ' * (number % 17 + 1)}{number}" for number in numbers]
    return [
        json.dumps({"id": f"d{number}", "text": text, "source": ("even", "odd")[number % 2]})
        for number, text in zip(numbers, texts, strict=True)
    ]
