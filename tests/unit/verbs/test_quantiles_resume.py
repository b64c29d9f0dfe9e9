"""quantiles: nothing is done twice, what was kept is used after a stop, which shards, rehearsals."""

import gzip
import shutil

import pytest

from dolma_dask.errors import DataError, StageError, UsageError
from dolma_dask.reading.thresholds import read_thresholds
from dolma_dask.verbs.mix.verb import mix
from dolma_dask.verbs.quantiles import job as quantile_run
from dolma_dask.verbs.quantiles import values as quantile_values
from dolma_dask.verbs.quantiles.job import ThresholdStage
from dolma_dask.verbs.quantiles.select import SelectStage
from dolma_dask.verbs.quantiles.verb import quantiles

from .conftest import failing, write_lines
from .test_quantiles import ROWS, X, Y, ask, count_calls, expected_table, stored, write_dataset


@pytest.fixture
def corpus(tmp_path):
    return write_dataset(tmp_path / "v0", ROWS)


def test_what_was_kept_is_used_after_a_stop_and_a_lost_result_is_made_again(corpus, monkeypatch):
    monkeypatch.setattr(quantile_values, "GROUP_BYTES", 1)
    stopped = failing(SelectStage, DataError, lambda task: task.shard == Y)
    with stopped, pytest.raises(StageError, match="stopped here"):
        ask(corpus)
    kept = sorted(path.name for path in corpus.glob("_work/quantiles-quantiles/*/values/*"))
    assert kept == ["000000.bin", "000001.bin", "000002.bin"]
    assert not (corpus / "quantiles").exists()
    read = count_calls(monkeypatch, quantile_values.ValueStage)
    chosen = count_calls(monkeypatch, SelectStage)
    ask(corpus)
    assert (read, chosen) == ([], [Y])
    assert stored(corpus) == expected_table(ROWS, lambda row: row[1])
    assert not (corpus / "_work").exists()
    (corpus / "quantiles/quantiles.json").unlink()
    assert ask(corpus).done == 3
    assert len(read) == 3


def test_a_file_that_changed_after_a_stop_is_read_again(corpus, monkeypatch, tmp_path):
    monkeypatch.setattr(quantile_values, "GROUP_BYTES", 1)
    with failing(SelectStage, DataError), pytest.raises(StageError):
        ask(corpus)
    rows = [(i, s, {**a, X: a[X] + 1}) for i, s, a in ROWS]
    write_dataset(tmp_path / "other", rows)
    shutil.copyfile(tmp_path / "other/attributes/s/1.jsonl.gz", corpus / "attributes/s/1.jsonl.gz")
    read = count_calls(monkeypatch, quantile_values.ValueStage)
    ask(corpus)
    assert read == ["1.jsonl.gz"]
    changed = [*ROWS[:66], *rows[66:266], *ROWS[266:]]
    assert stored(corpus) == expected_table(changed, lambda row: row[1])


def test_only_and_prune_are_about_the_chosen_shards(corpus):
    ask(corpus)
    with pytest.raises(UsageError, match="now 1 of 3 shards"):
        ask(corpus, prune=1)
    part = ask(corpus, prune=1, overwrite=True)
    assert stored(corpus) == expected_table(ROWS[:66], lambda row: row[1])
    assert (part.done, part.skipped) == (1, 0)
    assert any("1 of 3 shards" in note for note in part.notes)
    assert ask(corpus, only=["0."]).skipped == 1
    assert ask(corpus).done == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        {"probabilities": [0.1, 0.9]},
        {"sample": 0.5},
        {"by": "lang"},
        {"signals": [X]},
        {"prune": 1},
    ],
    ids=lambda other: next(iter(other)),
)
def test_other_options_ask_for_a_name_or_overwrite(corpus, other):
    def call(**options):
        return quantiles(str(corpus), progress=False, scheduler="synchronous", **options)

    call(level="regular")
    before = {path: path.read_bytes() for path in (corpus / "quantiles").iterdir()}
    for more in ({}, {"level": "regular"}, {"dry_run": True}):
        with pytest.raises(UsageError, match=r"other options.*--name.*--overwrite"):
            call(**other, **more)
    assert {path: path.read_bytes() for path in (corpus / "quantiles").iterdir()} == before
    assert call(**other, name="other").done
    assert before.items() <= {path: path.read_bytes() for path in (corpus / "quantiles").iterdir()}.items()
    replaced = call(**other, overwrite=True)
    assert any("quantiles.regular.json removed" in note for note in replaced.notes)
    assert call(**other).skipped  # the same options go on


def test_other_data_needs_no_leave(corpus):
    def call():
        return quantiles(str(corpus), level="regular", progress=False, scheduler="synchronous")

    call()
    write_dataset(corpus, other_rows())
    assert call().done == 3
    for path in (corpus / "attributes/s").iterdir():  # all signals: more than before
        lines = gzip.decompress(path.read_bytes()).decode().replace("s__t__", "u__t__").splitlines()
        write_lines(corpus / "attributes/u" / path.name, lines)
    assert call().done == 3


def test_a_sample_of_no_document_is_an_error(corpus):
    with pytest.raises(UsageError, match="selects none of 600 documents"):
        ask(corpus, sample=1e-9)
    assert not (corpus / "quantiles").exists()
    assert not (corpus / "_work").exists()


def test_a_rehearsal_does_nothing(corpus):
    summary = ask(corpus, dry_run=True, level="regular")
    assert summary.planned == ("0.jsonl.gz", "1.jsonl.gz", "2.jsonl.gz")
    assert not (corpus / "quantiles").exists()
    assert not (corpus / "_journal").exists()
    assert "would work on" in str(summary)
    ask(corpus)
    summary = ask(corpus, dry_run=True)
    assert (summary.planned, summary.skipped) == ((), 3)


def test_a_file_of_somebody_else_is_not_replaced_silently(corpus):
    (corpus / "quantiles").mkdir()
    (corpus / "quantiles/quantiles.json").write_text("{}")
    with pytest.raises(UsageError, match="not made by this command"):
        ask(corpus)
    assert ask(corpus, overwrite=True).done == 3
    assert ask(corpus, overwrite=True).done == 3


# ------------------------------------------------------------------------------- what others write at the same time


def other_rows():
    """As many values as in `ROWS`, and others."""
    return [(i, s, {**a, X: None if a[X] is None else a[X] + 1}) for i, s, a in ROWS]


def test_values_that_a_straggler_of_an_earlier_call_wrote_are_not_believed(corpus, tmp_path):
    """They have the names and sizes of the right ones."""
    before = write_dataset(tmp_path / "before", other_rows())
    for place in (before, corpus):
        with failing(SelectStage, DataError), pytest.raises(StageError, match="stopped here"):
            ask(place)
    (theirs,) = before.glob("_work/quantiles-quantiles/*/values/*")
    (ours,) = corpus.glob("_work/quantiles-quantiles/*/values/*")
    assert theirs.stat().st_size == ours.stat().st_size
    theirs.replace(ours)
    assert ask(corpus).done == 3
    assert stored(corpus) == ask(write_dataset(tmp_path / "alone", ROWS)).quantiles


def test_a_result_that_a_straggler_wrote_is_not_believed(corpus, monkeypatch):
    original = quantile_run._PublishStage.run_shard

    def late(self, task):
        path = next(corpus.glob("_work/quantiles-quantiles/*/results/00000.json"))
        path.write_text(path.read_text().replace('"n":', '"n":1'))
        monkeypatch.undo()
        return original(self, task)

    monkeypatch.setattr(quantile_run._PublishStage, "run_shard", late)
    assert ask(corpus).quantiles == expected_table(ROWS, lambda row: row[1])


# ------------------------------------------------------------------------------------------------ thresholds of old


def test_thresholds_of_replaced_quantiles_do_not_stay(corpus, tmp_path):
    ask(corpus, level="strict")
    ask(corpus, level="regular")
    path = corpus / "quantiles/quantiles.strict.json"
    old = path.read_bytes()
    shutil.rmtree(corpus / "attributes")
    shutil.copytree(write_dataset(tmp_path / "other", other_rows()) / "attributes", corpus / "attributes")
    ask(corpus, level="regular")
    assert not path.exists(), "its bounds were of other values"
    assert (corpus / "quantiles/quantiles.regular.json").exists()
    path.write_bytes(old)  # put back: the journal knows better
    with pytest.raises(
        UsageError, match=r"other quantiles than quantiles/quantiles\.json holds now.*--level strict"
    ):
        read_thresholds(str(path))
    with pytest.raises(UsageError, match="other quantiles"):
        mix(str(corpus), to=str(tmp_path / "v1"), thresholds=str(path), progress=False)
    renewed = ask(corpus, level="strict").thresholds
    assert read_thresholds(str(path)) == renewed
    assert path.read_bytes() != old


def test_thresholds_that_a_person_has_changed_stay(corpus, tmp_path):
    ask(corpus, level="strict")
    path = corpus / "quantiles/quantiles.strict.json"
    path.write_text(path.read_text().replace("0.", "1."))
    mine = path.read_bytes()
    ask(corpus, probabilities=[0.5], overwrite=True)
    assert path.read_bytes() == mine
    read_thresholds(str(path))


def test_thresholds_of_a_moved_dataset_are_current(corpus, tmp_path):
    cuts = ask(corpus, level="strict").thresholds
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved, copy_function=shutil.copyfile)
    assert read_thresholds(str(moved / "quantiles/quantiles.strict.json")) == cuts


@pytest.mark.slow
def test_thresholds_are_written_before_another_run_may_begin(corpus, monkeypatch):
    write, refused = ThresholdStage.run_shard, []

    def write_beside_another(self, task):
        with pytest.raises(UsageError, match="expected one at a time"):
            ask(corpus, by="none", overwrite=True)
        refused.append(task.shard)
        return write(self, task)

    monkeypatch.setattr(ThresholdStage, "run_shard", write_beside_another)
    made = ask(corpus, level="strict").thresholds
    assert refused == ["quantiles/quantiles.strict.json"]
    assert read_thresholds(str(corpus / "quantiles/quantiles.strict.json")) == made
