"""report: the whole chain from its journals, the pass over the signals, what is refused, and input that means harm."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest

import dolma_dask as dk
from dolma_dask.cli import main
from dolma_dask.errors import MissingAttributesError, StageError, UsageError
from dolma_dask.journal import Journal
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.verbs.report import page
from dolma_dask.verbs.report import survey as module

from .conftest import TEXTS, document, read_lines, write_lines

LENGTH = "char_length_v1__char_length_v1__length"
QUIET = {"progress": False, "scheduler": "synchronous"}


@pytest.fixture
def plain(monkeypatch):
    """Leave the drawing out: it has tests of its own and takes a second."""
    monkeypatch.setattr(
        page, "render", lambda data: f'<meta content="dolma_dask {data.version}">{data.title}'
    )


def content(path: Path) -> dict:
    return json.loads(path.with_suffix(".json").read_text())


def attribute_rows(rows: list[tuple[str, dict[str, float | None]]]) -> list[str]:
    """Rows as another tool writes them: flat."""
    return [json.dumps({"source": "s", "id": identity, **values}) for identity, values in rows]


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> Path:
    """Raw files -> v0, tagged -> v1 -> tokens; two bad lines on the way."""
    root = tmp_path_factory.mktemp("chain")
    texts = [f"{'wörd ' * (number % 17 + 1)}{number}" for number in range(60)]
    for name, part in (("a", range(25)), ("b/c", range(25, 60))):
        lines = [
            json.dumps({"id": f"d{i}", "text": texts[i], "source": "even" if i % 2 == 0 else "odd"})
            for i in part
        ]
        write_lines(root / f"raw/{name}.jsonl.gz", [*lines, *(["{", "[]"] if name == "a" else [])])
    dk.convert(
        str(root / "raw"), to=str(root / "v0"), on_bad_record="quarantine", max_bad_fraction=0.1, **QUIET
    )
    dk.tag(str(root / "v0"), ["char_length_v1"], **QUIET)
    dk.tag(str(root / "v0"), ["whitespace_tokenizer_v1"], **QUIET)
    where = "30 < length <= 70 and source == 'odd'"
    v1 = dk.mix(str(root / "v0"), to=str(root / "v1"), where=where, attributes=["char_length_v1"], **QUIET)
    train_tokenizer(texts, root / "tokenizer.json", 300)
    dk.ragged(v1, str(root / "tokens"), tokenizer=str(root / "tokenizer.json"), **QUIET)
    return root


def documents_of(root: Path) -> list[tuple[str, int, dict]]:
    found = []
    for path in sorted((root / "documents").rglob("*.jsonl.gz")):
        shard = path.relative_to(root / "documents").as_posix()
        found += [(shard, row, json.loads(line)) for row, line in enumerate(read_lines(path))]
    return found


def test_the_chain_is_told_as_it_was(chain, plain):
    to = chain / "page.html"
    summary = dk.report(str(chain / "v1"), to=str(to), tokens=[str(chain / "tokens")], examples=2, **QUIET)
    told = content(to)
    every = documents_of(chain / "v0")
    kept = documents_of(chain / "v1")
    size = {
        root: sum(len(item["text"].encode()) for *_, item in items)
        for root, items in (("v0", every), ("v1", kept))
    }
    rows = {row["verb"]: row for row in told["stages"]}
    assert list(rows) == ["convert", "tag", "mix", "ragged"]
    assert [(row["documents_in"], row["documents_out"], row["text_bytes"]) for row in rows.values()] == [
        (62, 60, size["v0"]),
        (60, 60, size["v0"]),
        (60, len(kept), size["v1"]),
        (len(kept), len(kept), size["v1"]),
    ]
    assert [row["shards"] for row in rows.values()] == [2, 2, 2, 2]
    assert [row["bad_records"] for row in rows.values()] == [2, 0, 0, 0]
    assert rows["tag"]["note"] == "char_length_v1, whitespace_tokenizer_v1"
    assert rows["mix"]["note"] == "from v0"
    assert rows["ragged"]["tokens"] == sum(len(item) for item in dk.open_ragged(str(chain / "tokens")))
    assert rows["mix"]["bytes_out"] == sum(
        path.stat().st_size for path in (chain / "v1/documents").rglob("*.gz")
    )
    assert told["quarantine"] == [
        {"verb": "convert", "reason": "invalid json", "records": 1},
        {"verb": "convert", "reason": "not an object", "records": 1},
    ]
    assert told["where"] == "30 < length <= 70 and source == 'odd'"
    assert {(row["source"], row["documents"], row["kept_documents"]) for row in told["sources"]} == {
        ("even", 30, 0),
        ("odd", 30, len(kept)),
    }
    lengths = {(shard, row): len(item["text"]) for shard, row, item in every}
    matched = [
        sum(length > 30 for length in lengths.values()),
        sum(length <= 70 for length in lengths.values()),
        30,
    ]
    assert [(row["rule"], row["matched_documents"]) for row in told["rules"]] == list(
        zip(["30 < length", "length <= 70", "source == 'odd'"], matched, strict=True)
    )
    assert summary.counts == {"documents": 60, "signals": len(told["signals"]), "stages": 4}
    assert summary.target == str(to)
    assert summary.done == 2
    assert summary.notes == ()


def test_signals_have_counts_and_bounds_and_the_deciding_ones_stand_first(chain, plain):
    dk.report(str(chain / "v1"), to=str(chain / "page.html"), **QUIET)
    signals = content(chain / "page.html")["signals"]
    assert signals[0]["key"] == LENGTH
    assert signals[0]["threshold"] == [[">", 30.0], ["<=", 70.0]]
    lengths = [len(item["text"]) for *_, item in documents_of(chain / "v0")]
    assert (signals[0]["n"], signals[0]["min"], signals[0]["max"]) == (60, min(lengths), max(lengths))
    assert sum(signals[0]["counts"]) == 60
    assert sum(signals[0]["kept_counts"]) == len(documents_of(chain / "v1"))
    assert signals[0]["quantiles"]["0.5"] == sorted(lengths)[29]
    assert all(signal["threshold"] == [] for signal in signals[1:])
    assert {signal["key"].partition("__")[0] for signal in signals} == {
        "char_length_v1",
        "whitespace_tokenizer_v1",
    }


def test_examples_are_the_nearest_documents_that_one_condition_decides(chain, plain):
    dk.report(str(chain / "v1"), to=str(chain / "page.html"), examples=2, **QUIET)
    told = content(chain / "page.html")["examples"]
    near = {}
    for shard, row, item in documents_of(chain / "v0"):
        length = len(item["text"])
        held = {"30 < length": length > 30, "length <= 70": length <= 70, "source": item["source"] == "odd"}
        for rule, bound in (("30 < length", 30), ("length <= 70", 70)):
            if all(value for other, value in held.items() if other != rule):
                side = "just inside" if held[rule] else "just outside"
                near.setdefault((rule, side), []).append(
                    (abs(length - bound), shard, row, item["id"], length, item["text"])
                )
    expected = [
        (rule, side, *item[1:])
        for rule in ("30 < length", "length <= 70")
        for side in ("just inside", "just outside")
        for item in sorted(near[rule, side])[:2]
    ]
    names = ("rule", "kind", "shard", "row", "id", "value", "excerpt")
    assert [tuple(row[name] for name in names) for row in told] == expected
    assert len(expected) == 8


def test_equal_data_gives_equal_bytes_whatever_runs_it(chain, monkeypatch):
    newest = max(
        time
        for verb, root in (("convert", "v0"), ("tag", "v0"), ("mix", "v1"), ("ragged", "tokens"))
        for journal in [Journal(str(chain / root), verb)]
        for time in (
            *(run.started for run in journal.runs),
            *(record.finished for record in journal.records.values()),
        )
    )
    tokens = [str(chain / "tokens")]
    dk.report(str(chain / "v1"), to=str(chain / "one.html"), tokens=tokens, **QUIET)
    monkeypatch.setattr(module, "MOST_TASKS", 1)
    dk.report(
        str(chain / "v1"), to=str(chain / "two.html"), tokens=tokens, progress=False, scheduler="threads"
    )
    for suffix in (".html", ".json"):
        assert (chain / f"one{suffix}").read_bytes() == (chain / f"two{suffix}").read_bytes()
    assert (
        content(chain / "one.html")["created"] == f"{datetime.fromtimestamp(newest, UTC):%Y-%m-%dT%H:%M:%SZ}"
    )
    assert str(chain) not in (chain / "one.html").read_text() + (chain / "one.json").read_text()


def test_a_copied_chain_reads_its_own_parent(chain, tmp_path, plain):
    for name in ("v0", "v1"):
        shutil.copytree(chain / name, tmp_path / "copy" / name)
    shutil.rmtree(tmp_path / "copy/v0/attributes/char_length_v1")
    with pytest.raises(UsageError, match="copy/v0 has no attribute set"):
        dk.report(str(tmp_path / "copy/v1"), to=str(tmp_path / "a.html"), **QUIET)


def test_a_moved_chain_is_still_followed_and_a_lost_parent_is_said(chain, tmp_path, plain):
    for name in ("v0", "v1", "tokens"):
        shutil.copytree(chain / name, tmp_path / "moved" / name)
    hidden = chain.with_name("hidden")
    chain.rename(hidden)
    try:
        dk.report(str(tmp_path / "moved/v1"), to=str(tmp_path / "a.html"), **QUIET)
        assert [row["verb"] for row in content(tmp_path / "a.html")["stages"]] == ["convert", "tag", "mix"]
        shutil.rmtree(tmp_path / "moved/v0")
        summary = dk.report(str(tmp_path / "moved/v1"), to=str(tmp_path / "a.html"), **QUIET)
    finally:
        hidden.rename(chain)
    told = content(tmp_path / "a.html")
    assert [row["verb"] for row in told["stages"]] == ["mix"]
    assert told["rules"] == told["signals"] == []
    assert any("mixed from v0, which is not there" in note for note in summary.notes)


def test_only_some_shards(chain, plain):
    dk.report(
        str(chain / "v1"), to=str(chain / "page.html"), tokens=str(chain / "tokens"), only=["b/"], **QUIET
    )
    told = content(chain / "page.html")
    assert [(row["shards"], row["documents_in"]) for row in told["stages"][:3]] == [(1, 35)] * 3
    assert sum(row["documents"] for row in told["sources"]) == 35
    assert told["quarantine"] == []


def test_a_dataset_that_nothing_is_known_of_has_a_page_too(dataset, plain):
    dk.report(str(dataset), to=str(dataset / "a.html"), title="Mine", **QUIET)
    told = content(dataset / "a.html")
    size = sum(len(text.encode()) for text in (TEXTS * 2)[:10])
    assert (told["title"], told["created"], told["signals"], told["where"]) == ("Mine", "–", [], None)
    assert [(row["verb"], row["documents_out"], row["text_bytes"]) for row in told["stages"]] == [
        ("read", 10, size)
    ]
    assert [(row["source"], row["documents"], row["kept_documents"]) for row in told["sources"]] == [
        ("s", 10, None)
    ]


def test_tokens_straight_from_a_rule(tagged, tmp_path, plain):
    train_tokenizer(TEXTS, tmp_path / "t.json", 300)
    tokenizer = str(tmp_path / "t.json")
    tokens = dk.ragged(
        str(tagged),
        str(tmp_path / "out"),
        tokenizer=tokenizer,
        where="length > 9",
        attributes=["char_length_v1"],
        **QUIET,
    )
    dk.report(str(tagged), to=str(tmp_path / "a.html"), tokens=[tokens.target, tokens.target], **QUIET)
    told = content(tmp_path / "a.html")
    assert [row["verb"] for row in told["stages"]] == ["tag", "ragged"]
    assert told["where"] == "length > 9"
    assert told["sources"][0]["kept_documents"] == sum(len(text) > 9 for text in (TEXTS * 2)[:10])


def test_tokens_of_some_shards_are_compared_with_these_alone(tagged, tmp_path, plain):
    train_tokenizer(TEXTS, tmp_path / "t.json", 300)
    options = {
        "tokenizer": str(tmp_path / "t.json"),
        "where": "char_length_v1__char_length_v1__length > 9",
        **QUIET,
    }
    tokens = dk.ragged(str(tagged), str(tmp_path / "out"), prune=1, **options)
    summary = dk.report(str(tagged), to=str(tmp_path / "a.html"), tokens=[tokens.target], **QUIET)
    told = content(tmp_path / "a.html")
    assert told["sources"][0]["kept_documents"] == sum(len(text) > 9 for text in TEXTS)
    assert not any("made again" in row["note"] for row in told["stages"])
    assert any("1 shard of v0 is not in out" in note for note in summary.notes)


def test_a_second_selection_is_told_with_what_it_selected_from(tagged, tmp_path, plain):
    v1 = dk.mix(
        str(tagged), to=str(tmp_path / "v1"), where="length > 3", attributes=["char_length_v1"], **QUIET
    )
    dk.tag(v1, ["char_length_v1"], **QUIET)
    v2 = dk.mix(v1, to=str(tmp_path / "v2"), where="length < 30", **QUIET)
    dk.report(v2, to=str(tmp_path / "a.html"), **QUIET)
    told = content(tmp_path / "a.html")
    assert [row["verb"] for row in told["stages"]] == ["tag", "mix", "tag", "mix"]
    texts = [text for text in (TEXTS * 2)[:10] if len(text) > 3]
    assert (told["where"], told["sources"][0]["documents"]) == ("length < 30", len(texts))
    assert told["rules"][0]["matched_documents"] == sum(len(text) < 30 for text in texts)


def test_names_that_became_ambiguous_later_still_mean_what_they_meant(tagged, tmp_path, plain):
    v1 = dk.mix(
        str(tagged), to=str(tmp_path / "v1"), where="length > 3", attributes=["char_length_v1"], **QUIET
    )
    for name in ("x/a", "y/z/b"):
        ids = [json.loads(line)["id"] for line in read_lines(tagged / f"documents/{name}.jsonl.gz")]
        rows = attribute_rows([(identity, {"other__length": 1.0}) for identity in ids])
        write_lines(tagged / f"attributes/other/{name}.jsonl.gz", rows)
    dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    told = content(tmp_path / "a.html")
    assert told["signals"][0]["key"] == LENGTH
    assert "other__length" in {signal["key"] for signal in told["signals"]}


def test_a_set_that_is_not_finished_is_left_out_unless_the_rule_needs_it(tagged, tmp_path, plain):
    v1 = dk.mix(
        str(tagged), to=str(tmp_path / "v1"), where="length > 3", attributes=["char_length_v1"], **QUIET
    )
    (tagged / "attributes/whitespace_tokenizer_v1/x/a.jsonl.gz").unlink()
    summary = dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    assert [signal["key"] for signal in content(tmp_path / "a.html")["signals"]] == [LENGTH]
    assert any("whitespace_tokenizer_v1 is left out" in note for note in summary.notes)
    (tagged / "attributes/char_length_v1/x/a.jsonl.gz").unlink()
    with pytest.raises(MissingAttributesError, match="is missing"):
        dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)


def test_what_was_deleted_or_replaced_is_not_counted(tagged, tmp_path, plain):
    shutil.rmtree(tagged / "attributes/whitespace_tokenizer_v1")
    path = tagged / "attributes/char_length_v1/x/a.jsonl.gz"
    write_lines(
        path, [line.replace("{", "{ ", 1) + " " * number for number, line in enumerate(read_lines(path))]
    )
    dk.report(str(tagged), to=str(tmp_path / "a.html"), **QUIET)
    told = content(tmp_path / "a.html")
    assert [(row["note"], row["documents_in"], row["shards"]) for row in told["stages"]] == [
        ("char_length_v1", 4, 1)
    ]
    assert [signal["n"] for signal in told["signals"]] == [10]


def test_what_changed_since_is_said(tagged, tmp_path, plain):
    v1 = dk.mix(
        str(tagged), to=str(tmp_path / "v1"), where="length > 3", attributes=["char_length_v1"], **QUIET
    )
    ids = [json.loads(line)["id"] for line in read_lines(tagged / "documents/x/a.jsonl.gz")]
    rows = [
        json.dumps({"id": identity, "attributes": {LENGTH: [[0, 9, 1.0]]}, "source": "s"}) for identity in ids
    ]
    write_lines(tagged / "attributes/char_length_v1/x/a.jsonl.gz", rows)
    summary = dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    assert any("the rule keeps" in note and "run mix again" in note for note in summary.notes)
    assert "run mix again" in content(tmp_path / "a.html")["stages"][-1]["note"]


def test_stale_attributes_that_the_rule_needs_make_no_page(tagged, tmp_path, plain):
    v1 = dk.mix(
        str(tagged), to=str(tmp_path / "v1"), where="length > 3", attributes=["char_length_v1"], **QUIET
    )
    change_texts(tagged)
    with pytest.raises(StageError, match="is stale") as caught:
        dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    assert [failure.error for failure in caught.value.failures] == ["StaleAttributesError"]
    assert not (tmp_path / "a.html").exists()


def change_texts(root: Path) -> None:
    write_lines(
        root / "documents/x/a.jsonl.gz", [document(number).replace("one", "two") for number in range(6)]
    )


def test_stale_attributes_that_no_rule_needs_are_left_out(tagged, tmp_path, plain):
    v1 = dk.mix(
        str(tagged), to=str(tmp_path / "v1"), where="length > 3", attributes=["char_length_v1"], **QUIET
    )
    change_texts(tagged)
    dk.tag(str(tagged), ["char_length_v1"], **QUIET)
    summary = dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    told = content(tmp_path / "a.html")
    assert [(signal["key"], signal["n"]) for signal in told["signals"]] == [(LENGTH, 10)]
    assert told["sources"][0]["documents"] == 10
    (note,) = (note for note in summary.notes if "left out" in note)
    assert note.startswith("attribute set whitespace_tokenizer_v1 is left out: ")
    assert "is stale" in note


@pytest.mark.parametrize("harm", ["short", "cut", "broken row", "two files", "clash"])
def test_a_set_that_does_not_fit_is_left_out(tagged, tmp_path, plain, harm):
    v1 = dk.mix(
        str(tagged), to=str(tmp_path / "v1"), where="length > 3", attributes=["char_length_v1"], **QUIET
    )
    name = "whitespace_tokenizer_v1"
    path = tagged / f"attributes/{name}/y/z/b.jsonl.gz"
    if harm == "short":
        write_lines(path, read_lines(path)[:-1])
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    elif harm == "broken row":
        write_lines(path, [*read_lines(path)[:-1], "oops"])
    elif harm == "two files":
        path.with_name("b.jsonl.zst").write_bytes(b"x")
    else:
        name = "char_length_v1-flat"
        dk.convert(str(tagged), to=str(tagged), attributes="char_length_v1", form="flat", **QUIET)
    summary = dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    assert any(f"attribute set {name} is left out" in note for note in summary.notes)
    keys = {signal["key"].partition("__")[0] for signal in content(tmp_path / "a.html")["signals"]}
    assert keys == {"char_length_v1"} | ({"whitespace_tokenizer_v1"} if harm == "clash" else set())


def test_converted_attributes_are_no_documents(tagged, tmp_path, plain):
    dk.convert(str(tagged), to=str(tagged), attributes="char_length_v1", form="flat", rename="flat", **QUIET)
    dk.report(str(tagged), to=str(tmp_path / "a.html"), **QUIET)
    rows = [(row["verb"], row["documents_in"], row["note"]) for row in content(tmp_path / "a.html")["stages"]]
    assert rows == [
        ("tag", 10, "char_length_v1, whitespace_tokenizer_v1"),
        ("convert_attributes", 10, "char_length_v1 to flat"),
    ]


def test_a_rule_that_was_changed_for_some_shards_is_said(tagged, tmp_path, plain):
    options = {"to": str(tmp_path / "v1"), "attributes": ["char_length_v1"], **QUIET}
    dk.mix(str(tagged), where="length > 3", **options)
    v1 = dk.mix(str(tagged), where="length > 12", only=["y/"], **options)
    summary = dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    told = content(tmp_path / "a.html")["stages"][-1]["note"]
    for note in (summary.notes[-1], told):
        assert "1 shard was made with another rule" in note
        assert "run mix again" in note
        assert "made again since" not in note
    dk.mix(str(tagged), where="length > 12", **options)
    assert not dk.report(v1, to=str(tmp_path / "a.html"), **QUIET).notes


def test_equal_conditions_are_one(tagged, tmp_path, plain):
    where = "length > 12 and char_length_v1__char_length_v1__length > 12 and source == 's' and length > 12"
    v1 = dk.mix(str(tagged), to=str(tmp_path / "v1"), where=where, attributes=["char_length_v1"], **QUIET)
    dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    told = content(tmp_path / "a.html")
    lengths = [len(text) for text in (TEXTS * 2)[:10]]
    assert [(row["rule"], row["matched_documents"]) for row in told["rules"]] == [
        ("length > 12", sum(length > 12 for length in lengths)),
        ("source == 's'", 10),
    ]
    assert {example["rule"] for example in told["examples"]} == {"length > 12"}
    assert {example["kind"] for example in told["examples"]} == {"just inside", "just outside"}


def test_a_rehearsal_writes_nothing(chain, tmp_path):
    summary = dk.report(str(chain / "v1"), to=str(tmp_path / "a.html"), dry_run=True, **QUIET)
    assert summary.planned == ("a.jsonl.gz", "b/c.jsonl.gz")
    assert "signals of v0; journals: convert in v0, tag in v0, mix in v1" in summary.notes[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["report", "report.htm", ".html", "folder/", "report.json"])
def test_a_page_ends_in_html(dataset, to):
    with pytest.raises(UsageError, match=r"ends in \.html"):
        dk.report(str(dataset), to=to, **QUIET)


@pytest.mark.parametrize("name", ["a.html", "a.json"])
def test_a_file_that_is_no_report_is_not_replaced(dataset, plain, name):
    (dataset / name).write_text("precious")
    with pytest.raises(UsageError, match="is no report"):
        dk.report(str(dataset), to=str(dataset / "a.html"), **QUIET)
    assert (dataset / name).read_text() == "precious"
    dk.report(str(dataset), to=str(dataset / "a.html"), overwrite=True, **QUIET)
    dk.report(str(dataset), to=str(dataset / "a.html"), **QUIET)  # a report may be replaced


def test_the_page_may_lie_in_an_object_store(dataset, plain):
    for _ in range(2):
        dk.report(str(dataset), to="memory://reports/deep/a.html", **QUIET)
    store = fsspec.filesystem("memory")
    assert json.loads(store.cat("/reports/deep/a.json"))["dataset"] == "v0"
    assert store.cat("/reports/deep/a.html").startswith(b"<meta")


def test_tokens_must_be_tokens_of_this_dataset(chain, dataset, plain):
    with pytest.raises(UsageError, match="has no journal of ragged"):
        dk.report(str(dataset), to=str(dataset / "a.html"), tokens=[str(dataset)], **QUIET)
    with pytest.raises(UsageError, match="made from other documents"):
        dk.report(str(dataset), to=str(dataset / "a.html"), tokens=[str(chain / "tokens")], **QUIET)


def test_negative_examples_are_refused(dataset):
    with pytest.raises(UsageError, match="examples is -1"):
        dk.report(str(dataset), to=str(dataset / "a.html"), examples=-1, **QUIET)


def test_the_command(chain, tmp_path, monkeypatch, capsys, plain):
    monkeypatch.chdir(chain)
    words = [
        "report",
        "v1",
        "--to",
        str(tmp_path / "a.html"),
        "--tokens",
        "tokens",
        "--scheduler",
        "synchronous",
    ]
    assert main([*words, "--no-progress", "--examples", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["stages"] == 4
    assert content(tmp_path / "a.html")["dataset"] == "v1"


def test_hostile_documents_stay_text(tmp_path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u0000{{ 7*7 }}" + "𝕏" * 700
    texts = [evil, "", "\ufeff", "a\r\nb", "x" * 5000]
    rows = [
        json.dumps({"id": f"<b>{number}&", "text": text, "source": f"<i>{number % 2}"})
        for number, text in enumerate(texts)
    ]
    write_lines(tmp_path / "v0/documents/<script>.jsonl.gz", [*rows, "{broken"])
    values = [0.0, -0.0, 1e308, -1e308, None]
    attributes = [
        json.dumps({"id": f"<b>{n}&", "source": f"<i>{n % 2}", "evil": value, "`k`<x>": 5e-324, "none": None})
        for n, value in enumerate(values)
    ]
    unreadable = json.dumps({"id": None, "error": "broken"})
    write_lines(tmp_path / "v0/attributes/evil/<script>.jsonl.gz", [*attributes, unreadable])
    where = "evil <= 0 and source != '</style><script>'"
    v1 = dk.mix(
        str(tmp_path / "v0"),
        to=str(tmp_path / "v1"),
        where=where,
        on_bad_record="quarantine",
        max_bad_fraction=0.5,
        **QUIET,
    )
    dk.report(v1, to=str(tmp_path / "a.html"), title="<script>title</script>", **QUIET)
    text, told = (tmp_path / "a.html").read_text(), content(tmp_path / "a.html")
    for raw in (
        "<script>alert",
        "<img",
        "<b>0",
        "<i>0",
        "<script>title",
        "<script>.jsonl",
        "</style><script>'",
    ):
        assert raw not in text
    assert [row["documents"] for row in told["sources"]] == [3, 2]
    assert told["stages"][0]["bad_records"] == 1
    assert told["quarantine"] == [{"verb": "mix", "reason": "invalid json", "records": 1}]
    signals = {signal["key"]: signal for signal in told["signals"]}
    assert (signals["evil"]["n"], signals["evil"]["nulls"]) == (4, 1)
    assert (signals["evil"]["min"], signals["evil"]["max"]) == (-1e308, 1e308)
    inside = [example for example in told["examples"] if example["kind"] == "just inside"]
    assert [(example["value"], example["row"]) for example in inside] == [(0.0, 0), (0.0, 1), (-1e308, 3)]
    assert inside[0]["excerpt"] == evil[:600] + "…"
    assert [example["row"] for example in told["examples"] if example["kind"] == "just outside"] == [2]


def test_a_rule_that_keeps_nothing_and_signals_without_values(tmp_path):
    write_lines(tmp_path / "v0/documents/a.jsonl", [document(number) for number in range(3)])
    rows = [{"x": float(number), "y": float(number) if number > 5 else None} for number in range(3)]
    write_lines(
        tmp_path / "v0/attributes/s/a.jsonl", attribute_rows([(f"d{i}", row) for i, row in enumerate(rows)])
    )
    v1 = dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), where="x > 10 and x < 0", **QUIET)
    dk.report(v1, to=str(tmp_path / "a.html"), **QUIET)
    told = content(tmp_path / "a.html")
    assert told["sources"][0]["kept_documents"] == 0
    assert told["examples"] == []
    assert [row["matched_documents"] for row in told["rules"]] == [0, 0]
    assert sum(told["signals"][0]["kept_counts"]) == 0


def test_what_other_verbs_found_stands_in_tables(dataset, plain):
    root = str(dataset)
    dk.tag(root, ["char_length_v1"], **QUIET)
    dk.dedupe(root, **QUIET)
    dk.quantiles(root, ["length"], by="source", **QUIET)
    dk.validate(root, **QUIET)
    dk.mix(root, to=str(dataset.parent / "v1"), where="exact is None", **QUIET)
    to = dataset.parent / "page.html"
    dk.report(str(dataset.parent / "v1"), to=str(to), **QUIET)
    results = {table["title"]: table for table in content(to)["results"]}
    assert results["v0"]["rows"] == []
    assert "nothing is wrong" in results["v0"]["caption"]
    assert results["exact in v0, by source"]["rows"] == [
        ["s", 10, 4, sum(len(text.encode()) for text in TEXTS[:4]), 4, 2]
    ]
    survivors = results["exact in v0, largest clusters"]["rows"]
    assert survivors[0] == ["d0", 2, "s", "x/a.jsonl.gz", 0]
    rows = results["v0/quantiles/quantiles.json, by source"]["rows"]
    assert [row[:3] for row in rows] == [[LENGTH, "all", 10], [LENGTH, "s", 10]]
    assert len({stage["verb"] for stage in content(to)["stages"]}) == 5


def test_problems_that_validate_found_are_an_alarm(dataset, plain):
    lines = read_lines(dataset / "documents/x/a.jsonl.gz")
    write_lines(dataset / "documents/x/a.jsonl.gz", [*lines, lines[0]])
    assert dk.validate(str(dataset), **QUIET).exit_status == 1
    to = dataset.parent / "page.html"
    dk.report(str(dataset), to=str(to), **QUIET)
    (table,) = content(to)["results"]
    assert table["is_alarm"]
    assert table["rows"][0][:2] == ["duplicate id", 1]
    assert "x/a.jsonl.gz, row 6" in table["rows"][0][2]
