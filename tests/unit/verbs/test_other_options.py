"""A finished output is replaced by one of other options on request only; the same command always goes on."""

import shutil

import pytest

import dolma_dask as dk
from dolma_dask.engine import runs
from dolma_dask.errors import InterruptedStageError, UsageError

from .conftest import document, write_lines

HERE = {"scheduler": "synchronous", "progress": False}


@pytest.fixture
def verbs(tagged, tmp_path, tokenizer):
    """Each verb that keeps what it has made: its call, and options of which the second are others."""
    raw = str(shutil.copytree(tagged / "documents", tmp_path / "raw"))
    lake, out = str(tagged), str(tmp_path / "out")
    return {
        "mix": (lambda **more: dk.mix(lake, to=out, **more, **HERE), {"where": "char_length_v1__length > 3"}, {"where": "char_length_v1__length > 9"}),
        "packed": (
            lambda **more: dk.mix(lake, to=out, max_size=2000, shuffle=True, **more, **HERE), {"seed": 1}, {"seed": 2}
        ),
        "ragged": (lambda **more: dk.ragged(lake, out, tokenizer=tokenizer, **more, **HERE), {}, {"where": "char_length_v1__length > 9"}),
        "hdf5": (
            lambda **more: dk.hdf5(lake, out, tokenizer=tokenizer, max_seq_length=8, **more, **HERE), {}, {"pad": "a"}
        ),
        "convert": (lambda **more: dk.convert(raw, to=out, **more, **HERE), {}, {"source": "other"}),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["mix", "packed", "ragged", "hdf5", "convert"])
def test_other_options_ask_before_they_replace(verbs, name):
    call, one, other = verbs[name]
    assert call(**one).done > 0
    assert call(**one).done == 0
    for rehearsal in (False, True):
        with pytest.raises(UsageError, match=r"of a finished \w+ with other options: .* --overwrite"):
            call(**other, dry_run=rehearsal)
    assert call(**one).done == 0
    assert call(**other, overwrite=True).done > 0
    assert call(**other).done == 0
    with pytest.raises(UsageError, match="with other options"):
        call(**one)


def test_options_inside_of_a_mapping_are_named(tagged, tmp_path):
    raw, out = str(shutil.copytree(tagged / "documents", tmp_path / "raw")), str(tmp_path / "out")
    dk.convert(raw, to=out, created="date", **HERE)
    with pytest.raises(UsageError, match=r"other options: mapping\.created 'date', now not given; first"):
        dk.convert(raw, to=out, **HERE)


def test_what_was_not_finished_is_replaced_without_a_question(verbs, monkeypatch):
    call, one, other = verbs["mix"]
    call(**one, only=["x/"])
    assert call(**other).done == 2
    with monkeypatch.context() as broken:
        broken.setattr(runs.Running, "take", _interrupt)
        with pytest.raises(InterruptedStageError):
            call(**one, overwrite=True)
    assert call(**one).done == 2


def _interrupt(*_):
    raise KeyboardInterrupt


def test_jobs_of_an_array_and_changed_documents_ask_nothing(verbs, tagged):
    call, one, _ = verbs["mix"]
    for part in ("x/", "y/"):
        assert call(**one, only=[part]).done == 1
    assert call(**one).done == 0
    write_lines(tagged / "documents/x/a.jsonl.gz", [document(number) for number in range(3)])
    dk.tag(str(tagged), ["char_length_v1"], **HERE)
    assert call(**one).done == 1
