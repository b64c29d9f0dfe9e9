"""mix with a budget: tokens by group, by the definition in plain Python, recounted from what was written."""

import json
import shlex
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import xxhash

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import StageError, UsageError
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.journal import Journal
from dolma_dask.pipelines.pipeline import run

from .conftest import TEXTS, read_lines, write_lines

SHARES = {"web": Fraction(4, 10), "code": Fraction(3, 10), "books": Fraction(3, 10)}
WORDS = "web=40% code=30% books=30%"


def document(number):
    """A document of one of four sources, of which one is rare; some have no text."""
    source = ("web", "web", "code", "web", "books", "web", "code")[number % 7] if number % 31 else "rare"
    text = " ".join(TEXTS[number * k % len(TEXTS)][:60] for k in range(number * 5 % 4))
    return {"id": f"d{number}", "source": source, "text": text, "metadata": {"n": number % 3}}


@pytest.fixture
def corpus(tmp_path, tokenizer):
    """200 documents in three shards, with the tokens of each counted."""
    for name, part in (("a", range(90)), ("b/c", range(90, 91)), ("d", range(91, 200))):
        write_lines(tmp_path / f"v0/documents/{name}.jsonl.gz", [json.dumps(document(n)) for n in part])
    dk.tag(str(tmp_path / "v0"), ["tokens"], tokenizer=tokenizer, progress=False)
    return tmp_path / "v0"


@pytest.fixture
def tokens_of(tokenizer):
    """Count the tokens of a document anew."""
    from dolma_dask.tokens.engine import build

    known = build(open_tokenizer(tokenizer)).tokenizer
    return lambda row: len(known.encode(row["text"], add_special_tokens=False).ids)


def mixed(root, to="v1", **options):
    return dk.mix(str(root), to=str(root.parent / to), progress=False, scheduler="synchronous", **options)


def documents(root):
    return [
        json.loads(line) for path in sorted((root / "documents").rglob("*.gz")) for line in read_lines(path)
    ]


def ranked(rows, seed=0):
    def hash_of(row):
        return xxhash.xxh64(
            row["id"].encode(), xxhash.xxh64(row["source"].encode(), seed).intdigest()
        ).intdigest()

    return sorted(rows, key=hash_of)


def oracle(rows, wanted, weigh, seed=0):
    """The definition: documents of each group in the order of their hash, again and again, until the next of the last epoch would exceed what is wanted."""
    groups, times = defaultdict(list), Counter()
    for row in rows:
        groups[row["source"]].append(row)
    for group, amount in wanted.items():
        weights = [(row["id"], weigh(row)) for row in ranked(groups[group], seed)]
        left, total = amount, sum(weight for _, weight in weights)
        while left >= total > 0:
            times.update(identity for identity, _ in weights)
            left -= total
        for identity, weight in weights if left else ():
            left -= weight
            if left < 0:
                break
            times[identity] += 1
    return times


def recounted(rows, weigh):
    sums = Counter()
    for row in rows:
        sums[row["source"]] += weigh(row)
    return sums


@pytest.mark.parametrize("total", [100, 900, "1.5K", 2345])
def test_each_group_has_its_tokens_to_within_one_document(corpus, tokens_of, total):
    rows = documents(corpus)
    summary = mixed(corpus, budget=WORDS, tokens=total, max_epochs=4, seed=3)
    number = {"1.5K": 1500}.get(total, total)
    wanted = {group: int(number * share) for group, share in SHARES.items()}
    times = oracle(rows, wanted, tokens_of, seed=3)
    kept = documents(corpus.parent / "v1")
    assert [row["id"] for row in kept] == [row["id"] for row in rows for _ in range(times[row["id"]])]
    assert max(times.values()) <= 4
    taken, longest = recounted(kept, tokens_of), max(map(tokens_of, rows))
    table = summary.to_json()["budget"]["groups"]
    for group, amount in wanted.items():
        assert amount - longest < taken[group] <= amount
        assert (table[group]["wanted"], table[group]["kept"]) == (amount, taken[group])
        assert table[group]["documents"] == sum(row["source"] == group for row in kept)
        assert table[group]["of"] == recounted(rows, tokens_of)[group]
    assert table["rare"]["documents"] == 0
    assert any("rare (7 documents)" in note for note in summary.notes)
    assert summary.counts.get("documents_again", 0) == sum(max(count - 1, 0) for count in times.values())


def test_a_larger_budget_holds_the_documents_of_a_smaller_one(corpus):
    before, most = Counter(), 0
    for total in (200, 700, 1500, 2300, 2600):
        mixed(corpus, f"{total}", budget=WORDS, tokens=total, max_epochs=4)
        held = Counter(row["id"] for row in documents(corpus.parent / f"{total}"))
        assert before <= held
        before, most = held, max(most, *held.values())
    assert most > 2, "some are taken several times"


def test_a_total_alone_keeps_the_shares_that_there_are(corpus, tokens_of):
    rows = documents(corpus)
    there = recounted(rows, tokens_of)
    mixed(corpus, tokens=1000)
    taken, longest = recounted(documents(corpus.parent / "v1"), tokens_of), max(map(tokens_of, rows))
    for group, own in there.items():
        assert 1000 * own / there.total() - longest - 1 < taken[group] <= 1000 * own / there.total()


def test_shares_alone_take_as_much_as_the_scarcest_group_allows(corpus, tokens_of):
    there = recounted(documents(corpus), tokens_of)
    summary = mixed(corpus, budget=WORDS, max_epochs=2)
    total = int(min(2 * there[group] / share for group, share in SHARES.items()))
    groups = summary.downsampled.groups
    assert {group: groups[group].wanted for group in SHARES} == {
        group: int(total * share) for group, share in SHARES.items()
    }
    assert groups["books"].epochs == pytest.approx(2, abs=0.05)


def test_numbers_of_tokens_for_groups_and_whole_epochs(corpus, tokens_of):
    there = recounted(documents(corpus), tokens_of)
    mixed(corpus, budget={"rare": 3 * there["rare"], "code": "1K"}, max_epochs=3)
    kept = documents(corpus.parent / "v1")
    times = Counter(row["id"] for row in kept if row["source"] == "rare")
    assert set(times.values()) == {3}, "also those without tokens, and none more often"
    assert len(times) == sum(row["source"] == "rare" for row in documents(corpus))
    assert {row["source"] for row in kept} == {"rare", "code"}


def test_rules_apply_before_the_budget_and_groups_are_any_column(corpus, tokens_of):
    summary = mixed(
        corpus, budget="0=50% 1=50%", by="metadata.n", where="source != 'web' and metadata.n != 2"
    )
    kept = documents(corpus.parent / "v1")
    sums = Counter()
    for row in kept:
        sums[row["metadata"]["n"]] += tokens_of(row)
    assert not any(row["source"] == "web" for row in kept)
    assert {int(label): one.kept for label, one in summary.downsampled.groups.items()} == sums
    with pytest.raises(UsageError, match=r"no document that the mix keeps has metadata\.n '2'"):
        mixed(corpus, "v2", budget="2=100%", by="metadata.n", where="metadata.n != 2")


@pytest.mark.parametrize("more", [{}, {"max_size": 1500}, {"shuffle": True, "max_size": 1500}])
def test_files_of_every_kind_hold_the_same_and_the_tokens_too(corpus, tokenizer, tokens_of, more):
    options = {"tokenizer": tokenizer, "eos": "<|endoftext|>"}
    outputs = {"ragged": {"to": str(corpus.parent / "tokens"), **options}}
    outputs["hdf5"] = {"to": str(corpus.parent / "rows"), "tokenizer": tokenizer, "max_seq_length": 64}
    summary = mixed(corpus, budget=WORDS, tokens=1800, max_epochs=4, **outputs, **more)
    wanted = {group: int(1800 * share) for group, share in SHARES.items()}
    times = oracle(documents(corpus), wanted, lambda row: tokens_of(row) + 1)
    kept = documents(corpus.parent / "v1")
    assert Counter(row["id"] for row in kept) == times
    lengths = np.concatenate([np.load(path) for path in sorted((corpus.parent / "tokens").glob("*.len.npy"))])
    assert lengths.tolist() == [tokens_of(row) + 1 for row in kept]
    assert summary.downsampled.table().rows[0][0] == "books"
    assert sum(one.kept for one in summary.downsampled.groups.values()) == lengths.sum()


def test_copies_stand_side_by_side_or_apart_when_shuffled(corpus):
    options = {"budget": "rare=100%", "max_epochs": 4}
    mixed(corpus, "side", **options)
    ids = [row["id"] for row in documents(corpus.parent / "side")]
    assert len(ids) == 28
    assert ids == [ids[at] for at in range(0, 28, 4) for _ in range(4)]
    mixed(corpus, "apart", shuffle=True, **options)
    shuffled = [row["id"] for row in documents(corpus.parent / "apart")]
    assert sorted(shuffled) == sorted(ids)
    assert sum(one == two for one, two in pairwise(shuffled)) < 14


def test_validate_knows_the_copies_of_a_mix_and_no_others(corpus):
    mixed(corpus, budget="rare=50% books=50%", max_epochs=3)
    found = dk.validate(str(corpus.parent / "v1"), against=str(corpus), progress=False)
    assert "duplicate_id" not in found.found
    assert any("by budget or sample" in note for note in found.notes)
    mixed(corpus.parent / "v1", "v2")
    again = dk.validate(str(corpus.parent / "v2"), progress=False)
    assert again.found["duplicate_id"].count > 0, "copies that this mix has read are the mix's no more"
    lines = [json.dumps(document(n)) for n in (1, 2, 3, 1)]
    write_lines(corpus.parent / "twice/documents/a.jsonl.gz", lines)
    dk.mix(str(corpus.parent / "twice"), to=str(corpus.parent / "v3"), sample=2.0, progress=False)
    mistaken = dk.validate(str(corpus.parent / "v3"), progress=False)
    assert mistaken.found["duplicate_id"].count == 5
    assert any("4 of 5 ids" in note for note in mistaken.notes)


def test_the_proof_stands_in_the_journal_the_card_and_the_report(corpus, tokenizer, plain):
    ragged = {"to": str(corpus.parent / "tokens"), "tokenizer": tokenizer}
    summary = mixed(corpus, budget=WORDS, tokens=600, ragged=ragged)
    for root, verb in (("v1", "mix"), ("tokens", "ragged")):
        (made,) = Journal(str(corpus.parent / root), verb).runs
        assert made.params["downsampled"] == summary.to_json()["budget"]
        assert made.params["budget"] == {"web": "40%", "code": "30%", "books": "30%"}
    card = (corpus.parent / "v1/README.md").read_text()
    assert "## Budget: tokens by source" in card
    assert f"| web | 240 | {summary.downsampled.groups['web'].of:,} |" in card
    dk.report(str(corpus.parent / "v1"), to=str(corpus.parent / "page.html"), progress=False)
    page = (corpus.parent / "page.html").read_text()
    assert "tokens by source" in page
    assert "tokens wanted" in page
    assert mixed(corpus, budget=WORDS, tokens=600, ragged=ragged).done == 0
    assert (corpus.parent / "v1/README.md").read_text() == card
    with pytest.raises(UsageError, match="overwrite"):
        mixed(corpus, budget=WORDS, tokens=601, ragged=ragged)


def test_what_cannot_be_had_is_told_with_what_can_and_writes_nothing(corpus, tokens_of, capsys):
    there = recounted(documents(corpus), tokens_of)
    words = ["--budget", WORDS, "--tokens", "2000", "--max-epochs", "2", "--no-progress"]
    call = ["mix", str(corpus), "--to", str(corpus.parent / "v1")]
    assert cli.main([*call, *words]) == 2
    told = capsys.readouterr().err
    assert not (corpus.parent / "v1").exists()
    assert f"{there['books']:,}" in told
    same, other, epochs = told.strip().splitlines()[-3:]
    total = int(min(2 * there[group] / share for group, share in SHARES.items()))
    assert f"--tokens {total} " in same
    words[3] = str(total)
    assert cli.main([*call, *words]) == 0
    words[3] = str(total + 1)
    assert cli.main([*call, *words, "--overwrite"]) == 2
    found = other.split('"')[1]
    amounts = {label: int(number) for label, number in (pair.split("=") for pair in found.split())}
    assert sum(amounts.values()) == 2000
    assert amounts["books"] == 2 * there["books"]
    assert amounts["web"] / amounts["code"] == pytest.approx(4 / 3, abs=0.01)
    assert cli.main([*call, "--budget", found, "--max-epochs", "2", "--overwrite", "--no-progress"]) == 0
    needed = epochs.rpartition(" ")[2]
    words[3:6:2] = ["2000", needed]
    assert cli.main([*call, *words, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "web="}, "found 'web='"),
        ({"budget": "web= code=100%"}, "found 'web= code=100%'"),
        ({"budget": "web"}, "found 'web'"),
        ({"budget": "web=140%"}, "found web=140%"),
        ({"budget": "web=40% code=30%"}, "adds up to 70 %"),
        ({"budget": "web=-5"}, "found '-5'"),
        ({"budget": {"web": -5}}, "found '-5'"),
        ({"budget": {"web": 0.4, "code": 0.6}}, "As a share: '40%'"),
        ({"budget": {"web": True}}, "found True"),
        ({"budget": "web=40% web=60%"}, "twice"),
        ({"budget": "web=40% code=60"}, "shares and numbers"),
        ({"budget": "web=1.5"}, "whole number"),
        ({"budget": "web=0"}, "wants nothing"),
        ({"budget": "web=8B", "tokens": 5}, "one of them"),
        ({"budget": {}}, "nothing in it"),
        ({"tokens": 0}, "1 or more"),
        ({"tokens": "20X"}, "found '20X'"),
        ({"budget": "wbe=100%"}, "did you mean 'web'"),
        ({"budget": "web=100%", "max_epochs": 0}, "max_epochs=0"),
        ({"budget": "web=100%", "max_epochs": 10_001}, "max_epochs=10001"),
        ({"budget": "= 40% web=60%"}, "found '= 40% web=60%'"),
        ({"max_epochs": 2}, "expected `budget`"),
        ({"budget": "web=100%", "downsample": 3}, "one of them"),
        ({"budget": "web=100%", "sample": 0.5}, "one of them"),
        ({"budget": "web=100%", "by": "metadata.nothing"}, "metadata.nothing"),
        ({"budget": "web=100%", "unit": "source"}, "no number per document"),
        ({"budget": "web=100%", "where": "tokens__count == 0"}, "have no tokens"),
        (
            {"budget": "web=50% code=50%", "where": "source == 'web' or tokens__count == 0"},
            "'code' that the mix keeps",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_written(corpus, options, words):
    with pytest.raises(UsageError, match=words):
        mixed(corpus, **options)
    assert not (corpus.parent / "v1").exists()


def test_tokens_must_be_those_of_the_tokenizer_that_is_used(corpus, tokenizer, tmp_path):
    from dolma_dask.testing.tokenizer import train_tokenizer

    train_tokenizer(["other words"], tmp_path / "other.json", vocab_size=300)
    ragged = {"to": str(corpus.parent / "tokens"), "tokenizer": str(tmp_path / "other.json")}
    with pytest.raises(UsageError, match=r"tokens were counted \(tokens__tokens__count\)"):
        mixed(corpus, budget=WORDS, ragged=ragged)
    assert not (corpus.parent / "v1").exists()
    found = mixed(corpus, "counted", budget=WORDS, unit="tokens", ragged=ragged)
    lengths = [np.load(path).sum() for path in (corpus.parent / "tokens").glob("*.len.npy")]
    assert sum(lengths) == sum(one.kept for one in found.downsampled.groups.values())
    dk.tag(str(corpus), ["tokens"], tokenizer=ragged["tokenizer"], only=["d"], overwrite=True, progress=False)
    with pytest.raises(UsageError, match="counted with 2 tokenizers"):
        mixed(corpus, budget=WORDS)
    dk.tag(str(corpus), ["tokens"], tokenizer=tokenizer, experiment="b", progress=False)
    with pytest.raises(UsageError, match="short for several columns"):
        mixed(corpus, budget=WORDS)
    mixed(corpus, budget=WORDS, unit="b__tokens__count")


def test_without_counts_it_says_how_to_make_them(corpus):
    write_lines(corpus.parent / "none/documents/a.jsonl.gz", [json.dumps(document(n)) for n in range(9)])
    with pytest.raises(UsageError, match="--taggers tokens --tokenizer NAME"):
        mixed(corpus.parent / "none", budget=WORDS)


def test_a_document_without_a_count_is_an_error(corpus):
    rows = [{**document(1), "id": f"x{count}", "metadata": {"n": 0, "count": count}} for count in (3, None)]
    write_lines(corpus.parent / "own/documents/e.jsonl.gz", [json.dumps(row) for row in rows])
    with pytest.raises(StageError) as caught:
        mixed(corpus.parent / "own", budget="web=100%", unit="metadata.count")
    assert "e.jsonl.gz, row 1: metadata.count is None" in caught.value.failures[0].message


def test_a_rehearsal_on_some_shards_takes_what_they_have(corpus):
    mixed(corpus, budget=WORDS, tokens=1000, max_epochs=4)
    trial = mixed(corpus, "trial", budget=WORDS, tokens=1000, prune=1)
    groups = trial.downsampled.groups
    assert sum(one.wanted for one in groups.values()) < 1000
    assert groups["web"].wanted / groups["code"].wanted == pytest.approx(4 / 3, abs=0.02)


def test_a_rehearsal_of_a_pipeline_takes_what_its_shards_have(corpus, tokenizer):
    tag = f"{{dataset: {corpus}, taggers: [tokens], tokenizer: {tokenizer}}}"
    mix = f"{{dataset: {corpus}, to: {corpus.parent}/v1, budget: {{web: 50%, code: 50%}}, tokens: 1200, max_epochs: 2}}"
    (corpus.parent / "p.yaml").write_text(f"stages:\n  - tag: {tag}\n  - mix: {mix}\n")
    assert run(str(corpus.parent / "p.yaml"), prune=1, progress=False).exit_status == 0
    assert 0 < len(documents(corpus.parent / "v1-rehearsal-1")) < 180
    assert run(str(corpus.parent / "p.yaml"), progress=False).exit_status == 0


def test_shards_that_are_asked_for_one_by_one_are_those_of_one_call(corpus):
    options = {"budget": WORDS, "tokens": 1500, "max_epochs": 4}
    mixed(corpus, "whole", **options)
    for name in ("a*", "b/*", "d*"):
        assert mixed(corpus, "single", only=[name], **options).done == 1
    assert documents(corpus.parent / "single") == documents(corpus.parent / "whole")


def test_groups_of_any_name_are_written_as_a_shell_takes_them(tmp_path, capsys):
    lines = [
        json.dumps({"id": f"d{n}", "text": "ab", "source": ("", 'a"b', "$HOME c=d")[n % 3]})
        for n in range(30)
    ]
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", lines)
    call = ["mix", str(tmp_path / "v0"), "--to", str(tmp_path / "v1"), "--unit", "bytes", "--no-progress"]
    words = ["--budget", "=50%", 'a"b=25% $HOME c=d=25%', "--tokens", "1000"]
    assert cli.main([*call, *words]) == 2
    told = capsys.readouterr().err.splitlines()[-2]
    said = shlex.split(told.partition(": ")[2].partition(" ((none)")[0])
    assert said == ["--budget", '=20 a"b=20 $HOME c=d=20']
    assert cli.main([*call, *said]) == 0
    assert len(documents(tmp_path / "v1")) == 30


def test_words_of_the_command_line_and_maps_of_pipelines(corpus):
    words = [
        "--budget",
        "web=40%",
        "code=30% books=30%",
        "--tokens",
        "1.2K",
        "--max-epochs",
        "3",
        "--no-progress",
    ]
    assert cli.main(["mix", str(corpus), "--to", str(corpus.parent / "v1"), *words]) == 0
    stage = f"{{dataset: {corpus}, to: {corpus.parent}/v2, budget: {{web: 40%, code: 30%, books: 30%}}, tokens: 1200, max_epochs: 3}}"
    (corpus.parent / "p.yaml").write_text(f"stages:\n  - mix: {stage}\n")
    run(str(corpus.parent / "p.yaml"), progress=False)
    assert documents(corpus.parent / "v2") == documents(corpus.parent / "v1")
    (corpus.parent / "p.yaml").write_text(
        f"stages:\n  - mix: {{dataset: {corpus}, to: {corpus.parent}/v3, budget: {{web: 500, code: 0.2K}}}}\n"
    )
    run(str(corpus.parent / "p.yaml"), progress=False)
    assert {row["source"] for row in documents(corpus.parent / "v3")} == {"web", "code"}
