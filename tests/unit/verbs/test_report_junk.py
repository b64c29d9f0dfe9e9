"""A page tells a newcomer that junk is among the documents, and shows the worst of each kind."""

import gzip
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import dolma_dask as dk
from dolma_dask.pages import page
from dolma_dask.pages.highlights import highlights
from dolma_dask.pages.junk import BOILERPLATE
from dolma_dask.pages.model import Example, Junk, ReportData, RuleRow, SourceRow
from dolma_dask.taggers.health import LIMITS

HERE = {"scheduler": "synchronous", "progress": False}
CLEAN = "It was late when the train came in, and nobody had slept: {}."
MESSES = {
    "mojibake": CLEAN.format("caf\u00c3\u00a9, it isn\u00e2\u20ac\u2122t"),
    "script": "window.onload = function() { init(); };",
    "roff": ".SH NAME\n\\fBls\\fR lists the names of files, and what they are.",
}


@pytest.fixture
def messy(tmp_path) -> Path:
    """Two shards of 20 documents, 5 of each mess among them; the share of a mess grows."""
    for shard in range(2):
        path = tmp_path / f"v0/documents/{shard}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        numbers = range(20 * shard, 20 * shard + 20)
        kinds = [list(MESSES)[number % 8] if number % 8 < 3 else "clean" for number in numbers]
        rows = [
            {"id": f"{kind}-{number}", "source": "web", "text": f"{MESSES.get(kind, '')}\n" * (1 + number // 8) + CLEAN.format(number)}
            for kind, number in zip(kinds, numbers, strict=True)
        ]  # fmt: skip
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    dk.tag(str(tmp_path / "v0"), ["health_v1"], experiment="mine", **HERE)
    return tmp_path


def junk_of(folder: Path, name: str) -> tuple[dict, int]:
    dk.report(str(folder / name), to=str(folder / f"{name}.html"), **HERE)
    content = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return {row["key"].rpartition("__")[2]: row for row in content["junk"]}, content["junk_documents"]


@pytest.mark.usefixtures("plain")
def test_a_page_counts_kept_documents_above_the_limits_and_shows_the_worst(messy):
    found, documents = junk_of(messy, "v0")
    assert documents == 15
    for name in MESSES:
        row = found[name]
        assert (row["documents"], row["limit"], row["share"]) == (5, LIMITS[name], 5 / 40)
        ids = [one["id"] for one in row["examples"]]
        assert ids == [f"{name}-{list(MESSES).index(name) + 8 * number}" for number in (4, 3, 2)]
    dk.mix(str(messy / "v0"), to=str(messy / "v1"), where="roff <= 0.05 and mojibake <= 0.0001", **HERE)
    found, documents = junk_of(messy, "v1")
    assert found["script"]["documents"] == documents == 5
    assert not {"roff", "mojibake"} & found.keys()
    everything = " and ".join(f"{name} <= {limit}" for name, limit in LIMITS.items())
    dk.mix(str(messy / "v0"), to=str(messy / "v2"), where=everything, **HERE)
    assert junk_of(messy, "v2") == ({}, 0)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("key", [None, "common"])
def test_lines_of_many_documents_are_junk_and_copies_are_none(tmp_path, key):
    """Half of the documents have a menu in common; all have a line twice, which is no line of many."""
    (tmp_path / "v0/documents").mkdir(parents=True)
    texts = [
        f"{'Home | News | About us' if number % 2 else f'Chapter {number}'}\n{CLEAN.format(number)}\n" * 2
        for number in range(20)
    ]
    rows = [
        json.dumps({"id": str(number), "text": text, "source": "web"}) + "\n"
        for number, text in enumerate(texts)
    ]
    (tmp_path / "v0/documents/a.jsonl").write_text("".join(rows))
    dk.dedupe(str(tmp_path / "v0"), unit="paragraph", name="copies", **HERE)
    dk.dedupe(str(tmp_path / "v0"), unit="paragraph", min_copies=10, name="boilerplate", key=key, **HERE)
    dk.report(str(tmp_path / "v0"), to=str(tmp_path / "v0.html"), **HERE)
    content = json.loads((tmp_path / "v0.json").read_text("utf-8"))
    ((name, row),) = ((row["key"], row) for row in content["junk"])
    assert name == f"{key or 'boilerplate'}__share"
    assert (row["documents"], row["limit"]) == (10, BOILERPLATE[0])
    assert {int(one["id"]) % 2 for one in row["examples"]} == {1}
    assert content["junk_documents"] == 0, "what many have is no fault of one"


def test_junk_is_told_first_with_the_rule_that_drops_it():
    hostile = "</pre><script>alert(1)</script>"
    shown = Example("above a limit", "r", "a__health_v1__roff", 1.0, "web", "1", "a", 0, hostile)
    data = ReportData(
        "t", "corpus/v1", "c", "v",
        sources=[SourceRow("web", 1000, 10000, 800, 8000)],
        rules=[RuleRow("words >= 5", 80, 0.8, 20, 200, 20, 200)],
        junk=[
            Junk("a__health_v1__html", 0.001, 81, 81 / 800),
            Junk("a__health_v1__roff", 0.05, 80, 80 / 800, "lines of manual pages", [shown]),
        ],
        junk_documents=120,
        origin="v0",
    )  # fmt: skip
    names = {one.key: one.key.rpartition("__")[2] for one in data.junk}
    first = highlights(data, names)[0]
    assert first.text == (
        "120 of 800 documents (15.0 %) may be junk, above a limit of html (81) and roff (80). More than a tenth are above that of html, "
        "which may be what the dataset is made of: no rule is proposed for it. Read some below, or drop the others:"
    )
    assert "--where 'words >= 5 and roff <= 0.05'" in first.command, (
        "what a tenth of the documents have is no junk"
    )
    rare = highlights(replace(data, junk=data.junk[1:]), names)[0]
    assert rare.text.endswith("a limit of roff (80). Read some below, or drop them:")
    common = highlights(replace(data, junk=data.junk[:1]), names)[0]
    assert common.text.endswith("is proposed for it. Read some below.")
    assert common.where is None
    menus = Junk("menus__share", 0.05, 200, 200 / 800, is_shared=True)
    shared = highlights(replace(data, junk=[menus, data.junk[1]], junk_documents=80), names)[0]
    assert shared.text.startswith(
        "80 of 800 documents (10.0 %) may be junk, above a limit of roff (80). 200 of 800 documents (25.0 %) have more than 5.0 % of their text in "
        "lines that many documents have (menus__share). More than a tenth are above that of menus__share, "
    )
    alone = highlights(replace(data, junk=[menus], junk_documents=0), names)[0]
    assert alone.text.startswith("200 of 800 documents (25.0 %) have more than")
    whole = page.render(data)
    assert whole.index('id="findings"') < whole.index('id="junk"') < whole.index('id="rules"')
    assert "lines of manual pages" in whole
    assert hostile not in whole
    assert 'id="junk"' not in page.render(ReportData("t", "d", "c", "v"))
