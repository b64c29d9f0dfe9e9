"""mix with downsample: an exact number of documents, bytes or tokens of each group, by the definition in plain Python over all documents."""

import json
from collections import defaultdict
from fractions import Fraction

import pytest
import xxhash

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import StageError, UsageError
from dolma_dask.journal import Journal
from dolma_dask.pipelines.pipeline import run
from dolma_dask.verbs.mix import downsampling

from .conftest import read_lines, write_lines

LANGUAGES = ("en", "de", "fr", None)


def document(number):
    """A document with a language, a length and a number of tokens; some ids stand twice."""
    language = LANGUAGES[number * number % 13 % 4]
    metadata = {"tokens": number % 9, **({} if language is None else {"language": language})}
    text = "é" * (number % 5) + "x" * (number * 7 % 40)
    return {"id": f"d{number % 150}", "source": f"s{number % 2}", "text": text, "metadata": metadata}


@pytest.fixture
def corpus(tmp_path):
    """200 documents in three shards, tagged with their lengths."""
    for name, part in (("a", range(90)), ("b/c", range(90, 91)), ("d", range(91, 200))):
        write_lines(tmp_path / f"v0/documents/{name}.jsonl.gz", [json.dumps(document(n)) for n in part])
    dk.tag(str(tmp_path / "v0"), ["char_length_v1"], progress=False)
    return tmp_path / "v0"


def mixed(root, to="v1", **options):
    return dk.mix(str(root), to=str(root.parent / to), progress=False, scheduler="synchronous", **options)


def documents(root):
    return [
        json.loads(line) for path in sorted((root / "documents").rglob("*.gz")) for line in read_lines(path)
    ]


def label(row):
    return row["metadata"].get("language") or ""


WEIGHTS = {
    "documents": lambda row: 1,
    "bytes": lambda row: len(row["text"].encode()),
    "metadata.tokens": lambda row: row["metadata"]["tokens"],
    "length": lambda row: len(row["text"]),
}


def oracle(rows, amounts, unit="documents", by=label, seed=0, keep=lambda row: True):
    """The definition: rank the documents of each group, and take the first whose sum does not exceed the number."""
    groups = defaultdict(list)
    for place, row in enumerate(rows):
        if keep(row):
            state = xxhash.xxh64(row["source"].encode(), seed).intdigest()
            own = xxhash.xxh64(row["id"].encode(), state).intdigest()
            groups[by(row)].append((own, place, WEIGHTS[unit](row)))
    kept = []
    for group, ranking in groups.items():
        amount = amounts.get(group) if isinstance(amounts, dict) else amounts
        total = sum(weight for _, _, weight in ranking)
        if isinstance(amount, float):
            amount = int(Fraction(repr(amount)) * total)
        left = total if amount is None else amount
        for _, place, weight in sorted(ranking):
            left -= weight
            if left < 0:
                break
            kept.append(place)
    return [rows[place] for place in sorted(kept)]


@pytest.mark.parametrize("unit", WEIGHTS)
@pytest.mark.parametrize(
    "amounts", [7, 0, 100000, 0.29, {"en": 9, "": 3}, {"en": 0.5, "de": 0, "fr": 1.0}, {"en": 40, "xx": 5}]
)
def test_the_first_of_each_group_by_hash_are_kept(corpus, unit, amounts):
    summary = mixed(corpus, downsample=amounts, by="metadata.language", unit=unit, seed=3)
    kept = documents(corpus.parent / "v1")
    assert kept == oracle(documents(corpus), amounts, unit, seed=3)
    assert summary.counts["documents_out"] == len(kept)
    groups = summary.to_json()["downsample"]["groups"]
    for group in ("en", "de", "fr", ""):
        ours = [row for row in kept if label(row) == group]
        assert groups[group]["documents"] == len(ours)
        assert groups[group]["kept"] == sum(map(WEIGHTS[unit], ours))
    assert any("'xx'" in note for note in summary.notes) == (isinstance(amounts, dict) and "xx" in amounts)
    assert any("100,000" in note for note in summary.notes) == (amounts == 100000)


def test_without_groups_all_documents_are_one_and_samples_nest(corpus):
    rows = documents(corpus)
    before = []
    for amount in (11, 50, 0.5):
        mixed(corpus, f"{amount}", downsample=amount)
        kept = documents(corpus.parent / f"{amount}")
        assert kept == oracle(rows, amount, by=lambda row: "")
        assert [row for row in kept if row in before] == before
        before = kept
    mixed(corpus, "sampled", sample=0.5)
    assert sum(row in before for row in documents(corpus.parent / "sampled")) > 80, (
        "the hash is that of samples"
    )


def test_it_counts_what_rules_keep_as_it_is_written(corpus):
    """After the rule, filters, replaced spans and the least length."""
    options = {"where": "length >= 10 and source == 's1'", "exclude": ["$.metadata[?(@.tokens == 3)]"]}

    def keep(row):
        return len(row["text"]) >= 10 and row["source"] == "s1" and row["metadata"]["tokens"] != 3

    summary = mixed(corpus, downsample={"en": 30, "de": 100}, by="metadata.language", unit="bytes", **options)
    wanted = oracle(documents(corpus), {"en": 30, "de": 100}, "bytes", keep=keep)
    assert documents(corpus.parent / "v1") == wanted
    left_out = sum(map(keep, documents(corpus))) - len(wanted)
    assert summary.counts["documents_beyond_cut"] == left_out
    mixed(corpus, "v2", downsample=5, min_text_length=20)
    long = oracle(documents(corpus), 5, by=lambda row: "", keep=lambda row: len(row["text"].encode()) >= 20)
    assert documents(corpus.parent / "v2") == long
    assert len(long) == 5


@pytest.mark.parametrize("by", ["source", "length", "char_length_v1__char_length_v1__length"])
def test_groups_of_any_column(corpus, by):
    column = (lambda row: row["source"]) if by == "source" else (lambda row: str(len(row["text"])))
    mixed(corpus, downsample=2, by=by)
    assert documents(corpus.parent / "v1") == oracle(documents(corpus), 2, by=column)


@pytest.mark.parametrize("more", [{"shuffle": True}, {"max_size": 1500}, {"format": "parquet"}])
def test_every_form_of_documents(corpus, more):
    mixed(corpus, downsample={"en": 20}, by="metadata.language", **more)
    if more == {"format": "parquet"}:
        mixed(corpus.parent / "v1", "v2", format="jsonl.gz")
    kept = documents(corpus.parent / ("v2" if more == {"format": "parquet"} else "v1"))
    by_text = lambda row: json.dumps(row, sort_keys=True)  # noqa: E731
    assert sorted(kept, key=by_text) == sorted(oracle(documents(corpus), {"en": 20}), key=by_text)


def test_tokens_are_those_of_the_tokenizer(corpus, tokenizer):
    import numpy as np

    ragged = {"to": str(corpus.parent / "tokens"), "tokenizer": str(tokenizer), "eos": "<|endoftext|>"}
    wanted = 120
    summary = mixed(corpus, downsample=wanted, by="metadata.language", unit="tokens", ragged=ragged)
    lengths = np.concatenate([np.load(path) for path in sorted((corpus.parent / "tokens").glob("*.len.npy"))])
    kept = documents(corpus.parent / "v1")
    assert len(kept) == len(lengths)
    groups = summary.to_json()["downsample"]["groups"]
    for group, drawn in groups.items():
        own = [int(length) for row, length in zip(kept, lengths, strict=True) if label(row) == group]
        assert drawn["kept"] == sum(own) <= wanted
        assert wanted - sum(own) < 60, "the next document would exceed it"


def test_the_run_of_each_output_has_the_table_among_its_parameters(corpus, tokenizer):
    ragged = {"to": str(corpus.parent / "tokens"), "tokenizer": str(tokenizer)}
    summary = mixed(corpus, ragged=ragged, downsample=30)
    for root, verb in (("v1", "mix"), ("tokens", "ragged")):
        (run,) = Journal(str(corpus.parent / root), verb).runs
        assert run.params["downsampled"] == summary.to_json()["downsample"]
    (table,) = summary.tables()
    assert [tuple(row)[1:] for row in table.rows] == [(30, 30, 200)]


def test_a_second_run_does_nothing_and_a_changed_shard_draws_anew(corpus):
    options = {"downsample": {"en": 12}, "by": "metadata.language"}
    assert mixed(corpus, **options).done == 3
    again = mixed(corpus, **options)
    assert (again.done, again.skipped) == (0, 3)
    assert again.to_json()["downsample"]["groups"]["en"]["kept"] == 12
    rows = [json.dumps(document(number)) for number in range(300, 340)]
    write_lines(corpus / "documents/d.jsonl.gz", rows)
    mixed(corpus, **options)
    assert documents(corpus.parent / "v1") == oracle(documents(corpus), {"en": 12})
    with pytest.raises(UsageError, match="overwrite"):
        mixed(corpus, downsample={"en": 13}, by="metadata.language")
    mixed(corpus, downsample={"en": 13}, by="metadata.language", overwrite=True)
    assert documents(corpus.parent / "v1") == oracle(documents(corpus), {"en": 13})
    assert not list(corpus.parent.rglob("_work/*"))


def test_a_rehearsal_ranks_nothing(corpus):
    summary = mixed(corpus, downsample=5, dry_run=True)
    assert len(summary.planned) == 3
    assert any("ranked first" in note for note in summary.notes)
    assert not (corpus.parent / "v1").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"downsample": -1}, "found -1"),
        ({"downsample": 1.5}, "found 1.5"),
        ({"downsample": True}, "found True"),
        ({"downsample": {}}, "nothing in it"),
        ({"downsample": ["en=5", "en=6"], "by": "source"}, "twice"),
        ({"downsample": {2: 5, "2": 7}, "by": "metadata.tokens"}, "twice"),
        ({"downsample": ["en=many"], "by": "source"}, "'many'"),
        ({"downsample": ["en", "de"], "by": "source"}, "'en'"),
        ({"downsample": {"en": 5}}, "expected `by`"),
        ({"by": "source"}, "expected `downsample`"),
        ({"downsample": 5, "sample": 0.5}, "one of them"),
        ({"downsample": 5, "by": "metadata.nothing"}, "metadata.nothing"),
        ({"downsample": 5, "unit": "tokens"}, "ragged or hdf5"),
        ({"downsample": 5, "unit": "metadata.language"}, "no number per document"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(corpus, options, words):
    with pytest.raises(UsageError, match=words):
        mixed(corpus, **options)
    assert not (corpus.parent / "v1").exists()


def test_groups_are_counted_over_all_files(tmp_path, monkeypatch):
    """However the shards are ranked together: there were at most so many for each of 64 MB."""
    for shard in range(3):
        lines = [
            json.dumps({"id": f"{shard}-{row}", "source": f"s{400 * shard + row}", "text": "x"})
            for row in range(400)
        ]
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl.gz", lines)
    for group_bytes in (1, downsampling.GROUP_BYTES):
        monkeypatch.setattr(downsampling, "GROUP_BYTES", group_bytes)
        with pytest.raises(
            (UsageError, StageError), match="by='source' has more than 1,000 different values"
        ):
            mixed(tmp_path / "v0", downsample=0.5, by="source")
    assert mixed(tmp_path / "v0", downsample=0.5, by="source", prune=2).counts["documents_out"] == 0


def test_a_document_without_a_count_is_an_error(corpus):
    row = {"id": "x", "source": "s0", "text": "t", "metadata": {"language": "en"}}
    write_lines(corpus / "documents/e.jsonl.gz", [json.dumps(row)])
    with pytest.raises(StageError) as caught:
        mixed(corpus, downsample=5, unit="metadata.tokens")
    assert "e.jsonl.gz, row 0: metadata.tokens is None" in caught.value.failures[0].message


def test_words_of_the_command_line_and_maps_of_pipelines(corpus, capsys):
    words = ["--downsample", "en=9", "de=0.5", "--by", "metadata.language", "--no-progress"]
    assert cli.main(["mix", str(corpus), "--to", str(corpus.parent / "v1"), *words]) == 0
    assert "downsampled: documents by metadata.language" in capsys.readouterr().out
    wanted = oracle(documents(corpus), {"en": 9, "de": 0.5})
    assert documents(corpus.parent / "v1") == wanted
    stage = f"{{dataset: {corpus}, to: {corpus.parent}/v2, by: metadata.language, downsample: {{en: 9, de: 0.5}}}}"
    (corpus.parent / "p.yaml").write_text(f"stages:\n  - mix: {stage}\n")
    run(str(corpus.parent / "p.yaml"), progress=False)
    assert documents(corpus.parent / "v2") == wanted
    (corpus.parent / "p.yaml").write_text(
        f"stages:\n  - mix: {{dataset: {corpus}, to: {corpus.parent}/v3, downsample: 5}}\n"
    )
    run(str(corpus.parent / "p.yaml"), progress=False)
    assert len(documents(corpus.parent / "v3")) == 5


def test_the_report_shows_what_was_wanted_and_kept(corpus, plain):
    mixed(corpus, downsample={"en": 9, "fr": 1000}, by="metadata.language", where="length >= 3")
    dk.report(str(corpus.parent / "v1"), to=str(corpus.parent / "page.html"), progress=False)
    page = (corpus.parent / "page.html").read_text()
    assert "Downsampling" in page
    assert "documents by metadata.language" in page


def test_replaced_spans_count_as_they_are_written(corpus):
    """An e-mail address becomes longer: what is weighed is what the new documents hold."""
    rows = [
        json.dumps({**document(n), "attributes": {"mail": [[0, 1, 1.0]]}})
        for n in range(60)
        if document(n)["text"]
    ]
    write_lines(corpus.parent / "own/documents/a.jsonl.gz", rows)
    replacing = {"span": "$.attributes.mail", "min_score": 0.5, "replacement": "|||MAIL|||"}
    mixed(corpus.parent / "own", "all", replace=[replacing])
    mixed(corpus.parent / "own", "v1", replace=[replacing], downsample=300, unit="bytes")
    wanted = oracle(documents(corpus.parent / "all"), 300, "bytes", by=lambda row: "")
    assert documents(corpus.parent / "v1") == wanted


@pytest.mark.parametrize("more", [{}, {"block": ["LIST"]}, {"where": "length >= 3", "ragged": {}}])
def test_shards_that_are_asked_for_one_by_one_are_those_of_one_call(corpus, tokenizer, more):
    (corpus.parent / "list.txt").write_text("d3\nd5\n")
    block = (str(corpus.parent / "list.txt"),) * ("block" in more)
    tokens = {"tokenizer": str(tokenizer)} if "ragged" in more else None

    def run(to, **options):
        ragged = tokens and {"ragged": {**tokens, "to": str(corpus.parent / f"{to}-tokens"), "name": "t"}}
        where = more.get("where")
        return mixed(
            corpus, to, downsample=20, by="source", where=where, block=block, **options, **ragged or {}
        )

    run("whole")
    for name in ("a*", "b/*", "d*"):
        assert run("single", only=[name]).done == 1
    assert documents(corpus.parent / "single") == documents(corpus.parent / "whole")
    assert len(documents(corpus.parent / "single")) == 40
    assert run("whole", only=["a*"]).done == 0
    assert run("single").done == 0
    trial = run("trial", prune=1)
    assert any("1 of 3 shards alone" in note for note in trial.notes)
    assert trial.counts["documents_out"] == 40


@pytest.mark.parametrize("more", [{"shards": 2}, {"shuffle": True}])
def test_files_of_some_shards_alone_say_so(corpus, more):
    """And never stand in silence for those of more shards."""
    assert "the files hold 1 of 3 shards alone" in mixed(corpus, only=["a*"], **more).notes
    assert not any("alone" in note for note in mixed(corpus, **more).notes)
    whole = documents(corpus.parent / "v1")
    for some in ({"prune": 1}, {"only": ["a*"]}, {"share": "2/3"}):
        with pytest.raises(UsageError, match="made from 2 files that this run does not read"):
            mixed(corpus, **some, **more)
    assert documents(corpus.parent / "v1") == whole
    assert mixed(corpus, **more).done == 0


@pytest.mark.parametrize("more", [{}, {"shards": 2}, {"shuffle": True}, {"downsample": 3}])
def test_a_share_beyond_the_last_shard_is_nothing_to_do(corpus, more):
    summary = mixed(corpus, share="4/4", **more)
    assert (summary.done, summary.exit_status) == (0, 0)
    assert any("no shard is left to read" in note for note in summary.notes)
    assert not (corpus.parent / "v1/documents").exists()


def test_a_share_of_a_trial_is_a_share_of_it_once(corpus):
    trial = mixed(corpus, downsample=1.0, prune=2, share="1/1")
    assert trial.counts["documents_out"] == 91
    assert mixed(corpus, "half", downsample=1.0, prune=2, share="1/2").counts["documents_out"] == 90 + 109


def test_numbers_name_groups_as_columns_have_them(corpus):
    mixed(corpus, downsample={2.0: 3, 3: 1}, by="metadata.tokens")
    wanted = oracle(documents(corpus), {"2": 3, "3": 1}, by=lambda row: str(row["metadata"]["tokens"]))
    assert documents(corpus.parent / "v1") == wanted


def test_a_count_whose_sum_could_overflow_is_an_error(corpus):
    row = {**document(1), "metadata": {"tokens": 2**31}}
    write_lines(corpus / "documents/e.jsonl.gz", [json.dumps(row)])
    with pytest.raises(StageError) as caught:
        mixed(corpus, downsample=5, unit="metadata.tokens")
    assert "from 0 to 2,147,483,647" in caught.value.failures[0].message
