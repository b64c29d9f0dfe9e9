"""quantiles: nothing is done twice, what was kept is used after a stop, which shards, rehearsals."""

import shutil

import pytest

from dolma_dask.errors import DataError, StageError, UsageError
from dolma_dask.stages import quantile_select, quantile_values

from .test_quantiles import ROWS, X, Y, ask, count_calls, expected_table, stored, write_dataset


@pytest.fixture
def corpus(tmp_path):
    return write_dataset(tmp_path / "v0", ROWS)


def test_the_second_call_does_nothing_and_tells_the_same(corpus, monkeypatch):
    first = ask(corpus, level="regular")
    written = (corpus / "quantiles/quantiles.json").stat().st_mtime_ns
    calls = count_calls(monkeypatch, quantile_values.ValueStage)
    second = ask(corpus, level="regular")
    assert (second.done, second.skipped, calls) == (0, 3, [])
    assert (corpus / "quantiles/quantiles.json").stat().st_mtime_ns == written
    assert (second.quantiles, second.counts) == (first.quantiles, first.counts)
    assert second.thresholds == first.thresholds


def test_moving_redoes_nothing_and_a_changed_file_all(corpus, tmp_path):
    ask(corpus)
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved, copy_function=shutil.copyfile)
    assert ask(moved).skipped == 3
    rows = [(i, s, {**a, X: a[X] + 1}) for i, s, a in ROWS]
    write_dataset(tmp_path / "other", rows)
    shutil.copyfile(tmp_path / "other/attributes/s/2.jsonl.gz", moved / "attributes/s/2.jsonl.gz")
    assert ask(moved).done == 3
    assert stored(moved) != stored(corpus)


def test_what_was_kept_is_used_after_a_stop_and_a_lost_result_is_made_again(corpus, monkeypatch):
    monkeypatch.setattr(quantile_values, "GROUP_BYTES", 1)
    original = quantile_select.SelectStage.run_shard

    def stopped(self, task):
        if task.shard == Y:
            raise DataError("stopped here")
        return original(self, task)

    monkeypatch.setattr(quantile_select.SelectStage, "run_shard", stopped)
    with pytest.raises(StageError, match="stopped here"):
        ask(corpus)
    kept = sorted(path.name for path in corpus.glob("_exchange/quantiles-quantiles/*/values/*"))
    assert kept == ["000000.bin", "000001.bin", "000002.bin"]
    assert not (corpus / "quantiles").exists()
    monkeypatch.setattr(quantile_select.SelectStage, "run_shard", original)
    read = count_calls(monkeypatch, quantile_values.ValueStage)
    chosen = count_calls(monkeypatch, quantile_select.SelectStage)
    ask(corpus)
    assert (read, chosen) == ([], [Y])
    assert stored(corpus) == expected_table(ROWS, lambda row: row[1])
    assert not (corpus / "_exchange").exists()
    (corpus / "quantiles/quantiles.json").unlink()
    assert ask(corpus).done == 3
    assert len(read) == 3


def test_a_file_that_changed_after_a_stop_is_read_again(corpus, monkeypatch, tmp_path):
    monkeypatch.setattr(quantile_values, "GROUP_BYTES", 1)
    original = quantile_select.SelectStage.run_shard

    def stopped(self, task):
        raise DataError("stopped here")

    monkeypatch.setattr(quantile_select.SelectStage, "run_shard", stopped)
    with pytest.raises(StageError):
        ask(corpus)
    monkeypatch.setattr(quantile_select.SelectStage, "run_shard", original)
    rows = [(i, s, {**a, X: a[X] + 1}) for i, s, a in ROWS]
    write_dataset(tmp_path / "other", rows)
    shutil.copyfile(tmp_path / "other/attributes/s/1.jsonl.gz", corpus / "attributes/s/1.jsonl.gz")
    read = count_calls(monkeypatch, quantile_values.ValueStage)
    ask(corpus)
    assert read == ["1.jsonl.gz"]
    changed = [*ROWS[:66], *rows[66:266], *ROWS[266:]]
    assert stored(corpus) == expected_table(changed, lambda row: row[1])


def test_other_arguments_make_other_quantiles_and_leave_nothing_of_the_old(corpus, monkeypatch):
    original = quantile_select.SelectStage.run_shard
    monkeypatch.setattr(quantile_select.SelectStage, "run_shard", lambda self, task: 1 / 0)
    with pytest.raises(StageError):
        ask(corpus)
    monkeypatch.setattr(quantile_select.SelectStage, "run_shard", original)
    summary = ask(corpus, by="lang")
    assert not (corpus / "_exchange").exists()
    assert summary.done == 3
    assert ask(corpus, by="flag").done == 3
    ask(corpus, X, name="other")
    assert ask(corpus, by="flag").skipped == 3


def test_only_and_prune_are_about_the_chosen_shards(corpus):
    ask(corpus)
    part = ask(corpus, prune=1)
    assert stored(corpus) == expected_table(ROWS[:66], lambda row: row[1])
    assert (part.done, part.skipped) == (1, 0)
    assert any("1 of 3 shards" in note for note in part.notes)
    assert ask(corpus, only=["0."]).skipped == 1
    assert ask(corpus).done == 3


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
