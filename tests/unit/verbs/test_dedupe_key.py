"""dedupe with a key that is not the name of its set, as in configurations of the Dolma toolkit: all that looks for flags finds them, and nothing changes without one."""

import json

import pytest

import dolma_dask as dk
from dolma_dask.cli import main
from dolma_dask.errors import UsageError
from dolma_dask.pages.words import COPIES

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
ROWS = 40


@pytest.fixture
def root(tmp_path):
    """Two shards, with a copy of every fourth document in the other one."""
    for shard in range(2):
        lines = []
        for row in range(ROWS):
            which = row if row % 4 == 0 else f"{shard}-{row}"
            text = " ".join(f"w{which}-{number}" for number in range(30))
            lines.append(json.dumps({"id": f"{shard}-{row}", "text": text, "source": "s"}))
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl.gz", lines)
    return tmp_path / "v0"


def attributes_of(root, name):
    paths = sorted((root / "attributes" / name).rglob("*.gz"))
    return [json.loads(line)["attributes"] for path in paths for line in read_lines(path)]


@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_only_keys_differ(root, how):
    plain = dk.dedupe(str(root), how=how, name="same", **HERE)
    keyed = dk.dedupe(str(root), how=how, name="bff", key="dup", **HERE)
    assert keyed.counts == plain.counts
    assert plain.counts["duplicates"] == ROWS // 4
    renamed = [
        {key.replace("same", "dup"): value for key, value in row.items()}
        for row in attributes_of(root, "same")
    ]
    assert attributes_of(root, "bff") == renamed
    assert any("dup" in row for row in renamed)
    assert dk.dedupe(str(root), how=how, name="bff", key="dup", **HERE).done == 0


def test_the_name_of_the_set_as_key_changes_nothing(root):
    dk.dedupe(str(root), name="same", **HERE)
    assert dk.dedupe(str(root), name="same", key="same", **HERE).done == 0
    dk.dedupe(str(root), name="same", key="other", **HERE)
    assert any("other" in row for row in attributes_of(root, "same"))
    assert not any("same" in row for row in attributes_of(root, "same"))
    dk.mix(str(root), to=str(root.parent / "v1"), where="other is None", **HERE)


@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_all_that_looks_for_flags_finds_them(root, how):
    dk.dedupe(str(root), how=how, name="bff", key="dup", **HERE)
    rules = ["dup is None", ~dk.duplicates("bff"), ~dk.duplicates("dup"), "bff is None", "`bff/dup` is None"]
    for number, rule in enumerate(rules):
        counts = dk.mix(str(root), to=str(root.parent / f"v{number + 1}"), where=rule, **HERE).counts
        assert counts["documents_out"] == 2 * ROWS - ROWS // 4
    config = {
        "streams": [
            {
                "name": "s",
                "documents": [f"{root}/documents/*.gz"],
                "attributes": ["bff"],
                "output": {"path": str(root.parent / "toolkit"), "max_size_in_bytes": 1_000_000},
                "filter": {"exclude": ["$.attributes[?(@.dup && @.dup[0] && @.dup[0][2] >= 1.0)]"]},
            }
        ]
    }
    (root.parent / "mixer.json").write_text(json.dumps(config))
    assert (
        main(["-c", str(root.parent / "mixer.json"), "mix", "--scheduler", "synchronous", "--no-progress"])
        == 0
    )
    rows = [line for path in (root.parent / "toolkit").rglob("*.jsonl.gz") for line in read_lines(path)]
    assert len(rows) == 2 * ROWS - ROWS // 4


def test_flags_are_no_signals(root):
    """Quantiles of kept documents leave the flagged out; a report shows what the flags drop, and no distribution of them."""
    dk.tag(str(root), taggers=["char_length_v1"], **HERE)
    dk.dedupe(str(root), name="bff", key="dup", **HERE)
    counts = dk.quantiles(str(root), signals=["length"], over="kept", **HERE).counts
    assert (counts["values"], counts["documents_excluded"]) == (2 * ROWS - ROWS // 4, ROWS // 4)
    dk.mix(str(root), to=str(root.parent / "v1"), where="dup is None", **HERE)
    dk.report(str(root.parent / "v1"), to=str(root.parent / "v1.html"), **HERE)
    page = (root.parent / "v1.html").read_text()
    assert f"{COPIES} (dup)" in page
    assert "and no rule drops them" not in page
    assert {row.state for row in dk.status(str(root)).rows} == {"done"}
    assert not dk.validate(str(root), **HERE).found


def test_two_sets_of_flags_under_one_key(root):
    dk.dedupe(str(root), name="r1", key="dup", share="1/2", **HERE)
    dk.dedupe(str(root), name="r2", key="dup", **HERE)
    rule = ~dk.duplicates("r1") & ~dk.duplicates("r2")
    counts = dk.mix(str(root), to=str(root.parent / "v1"), where=rule, **HERE).counts
    assert counts["documents_out"] == 2 * ROWS - ROWS // 4
    with pytest.raises(UsageError, match="several columns: `r1/dup`, `r2/dup`"):
        dk.mix(str(root), to=str(root.parent / "v2"), where="dup is None", **HERE)


def test_usage(root):
    for key in ("", "a/b", "-x"):
        with pytest.raises(UsageError, match="key"):
            dk.dedupe(str(root), key=key, **HERE)


@pytest.mark.parametrize("key", ["0", "1e5", "metadata.x", "-a", "a b"])
def test_a_key_that_rules_cannot_name(root, key):
    with pytest.raises(UsageError, match="key"):
        dk.dedupe(str(root), key=key, **HERE)


def test_a_key_that_stands_for_something_else(root):
    """Rules that were there before would mean the flags."""
    dk.tag(str(root), ["char_length_v1"], progress=False)
    dk.dedupe(str(root), name="fuzzy", **HERE)
    for key in ("length", "char_length_v1__char_length_v1__length", "fuzzy", "char_length_v1"):
        with pytest.raises(UsageError, match="stands for the attribute set"):
            dk.dedupe(str(root), key=key, **HERE)
    assert dk.dedupe(str(root), key="other", **HERE).counts["duplicates"] == ROWS // 4
    assert dk.dedupe(str(root), key="other", **HERE).done == 0
