"""dedupe --audit tells the truth: on documents whose copies were planted here, and of settings and code that find nothing."""

import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.display import percent
from dolma_dask.errors import DataError, UsageError
from dolma_dask.minhash.bands import Bands, expected_recall
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.verbs.dedupe.fuzzy import audit
from dolma_dask.verbs.dedupe.fuzzy.edges import BandEmitter
from dolma_dask.verbs.dedupe.fuzzy.planting import LEVELS, TOLERANCE, plant

from .conftest import write_lines
from .report_pages import QUIET

pytestmark = pytest.mark.slow
PAIRS = 40


def document(draw, words=120):
    """Return a text of words, some of them often, and a line in Japanese."""
    drawn = [draw.choice(("the", "of")) if draw.random() < 0.2 else f"w{draw.randrange(10**7)}" for _ in range(words)]  # fmt: skip
    japanese = "".join(chr(draw.randrange(0x4E00, 0x9FA5)) for _ in range(60))
    return f"{' '.join(drawn)}\n{japanese}"


def ngrams(text):
    """Return the 5-grams of a text whose words are of ASCII or stand alone."""
    head, _, tail = text.partition("\n")
    tokens = [*head.split(), *tail]
    return {tuple(tokens[first : first + 5]) for first in range(len(tokens) - 4)}


def jaccard(one, other):
    return len(ngrams(one) & ngrams(other)) / len(ngrams(one) | ngrams(other))


@pytest.fixture(scope="module")
def texts():
    """Return texts of no likeness, and 60 with a copy each in which some neighbouring words differ."""
    draw = random.Random(8)
    texts = [document(draw) for _ in range(420)]
    for number, text in enumerate(texts[:60]):
        words = text.split(" ")
        for place in range(10, 10 + number % 40):
            words[place] = f"v{draw.randrange(10**7)}"
        texts.append(" ".join(words))
    draw.shuffle(texts)
    return texts


@pytest.fixture
def root(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "PAIRS", PAIRS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    lines = [json.dumps({"id": f"d{n}", "text": text, "source": "s"}) for n, text in enumerate(texts)]
    for shard in range(2):
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl.gz", lines[shard::2])
    return tmp_path / "v0"


def audited(root, **options):
    return dk.dedupe(str(root), how="fuzzy", audit=True, **{"verify": "none", **options}, **QUIET)


def test_copies_have_the_similarity_that_they_are_said_to_have(texts):
    chosen = list(range(0, 64, 2))
    copies = plant(texts, chosen, MinHash(), 3)
    assert Counter(copy.level for copy in copies) == dict.fromkeys(LEVELS, 4)
    for copy in copies:
        assert copy.original in chosen
        true = MinHash().shingles(pa.array([texts[copy.original], copy.text], pa.large_string()))
        one, other = (set(true[1][a:b].tolist()) for a, b in zip(true[0][:-1], true[0][1:], strict=True))
        assert copy.similarity == len(one & other) / len(one | other)
        assert abs(copy.similarity - copy.level) <= TOLERANCE
    assert plant(texts, chosen, MinHash(), 3) == copies
    assert plant(texts, chosen, MinHash(), 4) != copies


@pytest.mark.parametrize(
    ("options", "least"), [({}, 0), ({"verify": "signatures"}, 90), ({"num_bands": 9, "rows_per_band": 13, "similarity": 0.8}, 0)]
)  # fmt: skip
def test_what_is_found_is_what_the_curve_says(root, options, least):
    summary = audited(root, **options)
    bands = Bands(options.get("num_bands", 14), options.get("rows_per_band", 8))
    assert [level.pairs for level in summary.levels] == pytest.approx([PAIRS] * len(LEVELS), abs=6)
    for level, wanted in zip(summary.levels, LEVELS, strict=True):
        assert level.similarity == pytest.approx(wanted, abs=TOLERANCE)
        chance = float(expected_recall(level.similarity, bands, 128, least))
        assert level.expected == pytest.approx(chance, abs=0.02)
        error = np.sqrt(chance * (1 - chance) / level.pairs)
        assert level.error == pytest.approx(error, abs=0.01)
        assert abs(level.found / level.pairs - level.expected) <= 4 * level.error + 1 / level.pairs


def test_what_is_removed_wrongly_is_counted(root, texts):
    """All documents are in the sample, so that what the audit counts is what dedupe flags, but for the order of the documents."""
    loose = {"num_bands": 40, "rows_per_band": 3}
    counts = audited(root, **loose).counts
    assert counts["sampled"] == len(texts)
    flagged = dk.dedupe(str(root), how="fuzzy", verify="none", **loose, **QUIET)
    assert counts["removed"] == flagged.counts["duplicates"] == 60
    table = pq.read_table(root / "clusters/fuzzy.parquet").to_pandas()
    clusters = [
        list(map(int, rows["id"].str[1:])) for _, rows in table.groupby(["cluster_shard", "cluster_row"])
    ]
    wrong = sum(jaccard(texts[one], texts[other]) < 0.7 for one, other in clusters)
    assert 5 < wrong < 55
    assert counts["removed_wrongly"] == wrong


def test_bands_that_find_nothing_show(root):
    summary = audited(root, num_bands=1, rows_per_band=128)
    assert [level.found for level in summary.levels[:-1]] == [0] * 7
    assert summary.levels[4].expected < 1e-6


def test_code_that_finds_nothing_shows(root, monkeypatch):
    monkeypatch.setattr(BandEmitter, "_records", lambda self, shard, *more: iter(()))
    summary = audited(root)
    assert {level.found for level in summary.levels} == {0}
    assert summary.levels[-1].expected > 0.99


def test_nothing_is_written_and_the_same_is_found_again(root, capsys):
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    one = audited(root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    assert not list(Path(tempfile.gettempdir()).iterdir())
    assert audited(root).levels == one.levels
    assert cli.main(["dedupe", str(root), "--how", "fuzzy", "--audit", "--verify", "none", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["levels"] == [vars(level) for level in one.levels]
    assert told["counts"]["copies"] == one.counts["copies"]
    assert "standard error" in str(one)
    assert "Planted copies</caption>" in one._repr_html_()


def test_a_rehearsal_says_what_would_be_compared_and_plants_nothing(root):
    told = audited(root, dry_run=True)
    assert (told.levels, told.counts) == ((), {})
    assert "14 of 8 rows" in str(told)


@pytest.mark.parametrize("dry_run", [False, True])
def test_options_that_an_audit_does_not_look_at_are_told(root, dry_run):
    told = audited(root, where="id != 'd1'", within="source", dry_run=dry_run)
    assert told.notes[-1] == "where and within not looked at: the sample is of all documents"
    assert not any("not looked at" in note for note in audited(root, within=None, dry_run=dry_run).notes)


def test_a_pipeline_tells_what_an_audit_found(root, tmp_path):
    file = tmp_path / "audit.yaml"
    file.write_text(
        f"stages:\n  - dedupe: {{dataset: {root}, how: fuzzy, audit: true, scheduler: synchronous}}\n"
    )
    told = dk.run(str(file), progress=False)
    (line,) = (line for line in str(told).splitlines() if "planted copies found" in line)
    level = told.stages[0].summary.levels[-1]
    assert (
        f"{percent(level.found, level.pairs)} at {level.similarity:.2f} ({percent(level.expected)})" in line
    )
    assert "removed wrongly: less similar than 0.70" in str(told)


def test_what_cannot_be_audited_is_refused(root, tmp_path):
    with pytest.raises(UsageError, match="audit with how='exact'"):
        dk.dedupe(str(root), audit=True, **QUIET)
    lines = [json.dumps({"id": str(n), "text": "the same text again", "source": "s"}) for n in range(9)]
    write_lines(tmp_path / "v1/documents/0.jsonl", lines)
    with pytest.raises(DataError, match="of 9 documents none is long enough"):
        audited(tmp_path / "v1")
