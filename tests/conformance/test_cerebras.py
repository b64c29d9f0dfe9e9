"""Rows of create_hdf5_dataset, all modes: ours are the same, or what its documentation promises where it is defective.

Every case is a whole command with the original's own arguments, and every folder is one that its loaders take.
"""

import json
import os
import tarfile
from contextlib import chdir
from pathlib import Path

import ftfy
import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from dolma_dask.cli import main
from dolma_dask.pipelines.hdf5_options import create_hdf5_dataset
from dolma_dask.testing.modelzoo import load_rows
from dolma_dask.tokens.specials import load_gpt2

pytestmark = pytest.mark.conformance

EXACT = (
    "lm_neox",
    "lm_gpt2",
    "lm_neox_nopack",
    "lm_gpt2_nopack",
    "lm_neox_split500",
    "lm_neox_noftfy",
    "lm_neox_wikidetok",
    "lm_neox_eos2_pad3",
    "lm_neox_metadata",
    "lm_neox_big_doc",
    "lm_neox_fmt_jsonl",
    "lm_neox_fmt_zst",
    "lm_neox_fmt_tar",
    "lm_neox_fmt_parquet",
    "lm_neox_fmt_txt",
    "vsl_neox",
    "vsl_gpt2",
    "sum_neox",
    "sumvsl_neox",
    "sumvsl_neox_multiturn",
    "fim_neox",
    "fim_neox_ar",
    "fim_neox_psm",
    "fim_neox_spm",
    "dpo_neox",
    "dpo_gpt2",
    "dpo_neox_msgs",
)
"""Cases with rows of the original."""

OF_CHANNELS = {
    "loss_valid_tokens",
    "non_pad_tokens",
    "num_masked_tokens",
    "num_pad_tokens",
    "num_tokens",
}
"""Of preferences all six channels are counted, masks and labels too, and padding as predicted."""

MISCOUNTED = {
    "lm_gpt2_nopack": {
        "discarded_files",
        "successful_files",
    },  # a document whose last token makes no row of its own, though others do
    "lm_gpt2": {"num_pad_tokens", "non_pad_tokens"},  # every end of a document counted as padding
    "lm_neox_eos2_pad3": {"num_pad_tokens", "non_pad_tokens"},  # the padding token occurs in texts
    "sum_neox": {"non_pad_tokens"},  # the ends of documents, which are tokens, left out
    "sumvsl_neox_multiturn": {
        "non_pad_tokens",
        # of the last pair of each dialogue alone
        "normalized_bytes_count",
        "normalized_chars_count",
    },
    "fim_neox": {"non_pad_tokens"},  # 0
    "fim_neox_ar": {"non_pad_tokens"},
    "fim_neox_psm": {"non_pad_tokens", "num_pad_tokens"},  # and every end of a document counted as padding
    "fim_neox_spm": {"non_pad_tokens", "num_pad_tokens"},
    **dict.fromkeys(("dpo_neox", "dpo_gpt2", "dpo_neox_msgs"), OF_CHANNELS),
}
"""Counts that are wrong in the original, by case."""

Case = dict[str, object]


@pytest.fixture(scope="module")
def world(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which the original's arguments are valid."""
    top = tmp_path_factory.mktemp("cerebras")
    folder = top / "conformance/cerebras"
    folder.mkdir(parents=True)
    (top / "tokenizers").symlink_to(shared / "tokenizers")
    with tarfile.open(shared / "conformance/cerebras/inputs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "params").symlink_to(shared / "conformance/cerebras/params")
    return folder


@pytest.fixture(scope="module")
def cases(shared: Path) -> dict[str, Case]:
    lines = (shared / "conformance/cerebras/cases.jsonl").read_text().splitlines()
    return {case["case"]: case for case in map(json.loads, lines)}


def words_of(case: Case, out: Path, *more: str) -> list[str]:
    """Return a case as the words of a command, with the original's own arguments."""
    argv = [str(word) for word in case["argv"]]
    words = [str(case["mode"]), *argv, "--output_dir", str(out), "--display_pbar", "False", *more]
    return [*words, "--scheduler", "synchronous"]


def run(world: Path, case: Case, out: Path, *more: str) -> np.ndarray:
    """Run a case and return our rows, which ModelZoo's loaders take."""
    with chdir(world):
        create_hdf5_dataset(words_of(case, out, *more))
    return load_rows(out, str(case["mode"])).rows


def rows_of(paths: list[Path]) -> np.ndarray:
    arrays = []
    for path in paths:
        with h5py.File(path) as file:
            arrays.append(file["data"][:])
    return np.concatenate(arrays)


def golden(shared: Path, name: str, first: str = "") -> np.ndarray:
    """Return the rows of the original in the order in which they were written."""
    found = (shared / "conformance/cerebras/cases" / name).glob(f"output_chunk_{first}*.h5")
    return rows_of(sorted(found, key=lambda path: int(path.stem.rsplit("_", 1)[-1])))


LIKE = ("--compat", "modelzoo-2.2", "--tail", "drop")


def like(case: Case) -> tuple[str, ...]:
    """Return the options with which a mode does as the original; FIM draws from NumPy's global generator there."""
    tail = LIKE if case["mode"] in ("LMData", "FIM") else LIKE[:2]
    seed = case["numpy_seed"]
    return tail if seed is None else (*tail, "--seed", str(seed))


def test_every_case_with_rows_is_compared(cases):
    assert set(EXACT) == {name for name, case in cases.items() if case["expect"] == "rows"}


@pytest.mark.parametrize("name", EXACT)
def test_rows_and_counts_of_the_original(name, shared, world, cases, tmp_path):
    rows = run(world, cases[name], tmp_path, *like(cases[name]))
    assert np.array_equal(rows, golden(shared, name))
    ours = json.loads((tmp_path / "data_params.json").read_text())["post-process"]
    theirs = json.loads((shared / "conformance/cerebras/cases" / name / "post-process.json").read_text())
    wrong = {field for field in theirs if ours.get(field) != theirs[field]}
    assert wrong == MISCOUNTED.get(name, set())


def test_files_are_laid_out_as_the_original_ones(shared, world, cases, tmp_path):
    run(world, cases["lm_neox"], tmp_path, *LIKE)
    original = shared / "conformance/cerebras/cases/lm_neox/output_chunk_0_0_0_0.h5"
    with h5py.File(tmp_path / "part-000000-00000.h5") as ours, h5py.File(original) as theirs:
        assert list(ours) == list(theirs)
        for name in ("dtype", "chunks", "compression", "compression_opts", "shuffle", "fletcher32"):
            assert getattr(ours["data"], name) == getattr(theirs["data"], name), name
        assert ours["data"].shape[1:] == theirs["data"].shape[1:]
        assert ours.attrs["n_examples"].dtype == theirs.attrs["n_examples"].dtype


@pytest.mark.parametrize("rows_per_file", ["7", "100"])
def test_files_and_shards_do_not_matter(rows_per_file, shared, world, cases, tmp_path):
    """Four files are packed as one; the original's rows depend on its processes."""
    rows = run(world, cases["lm_neox_2proc"], tmp_path, *LIKE, "--files_per_record", rows_per_file)
    assert np.array_equal(rows, golden(shared, "lm_neox"))


@pytest.mark.parametrize(("process", "parts"), [("0", (0, 2)), ("1", (1, 3))])
def test_rows_of_each_of_two_processes(process, parts, shared, world, cases, tmp_path):
    """Its processes take files in turn, and each packs its own."""
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"inputs/lm_4files/part-{part}.jsonl\n" for part in parts))
    rows = run(world, cases["lm_neox_2proc"], tmp_path / "out", *LIKE, "--metadata_files", os.fspath(listed))
    assert np.array_equal(rows, golden(shared, "lm_neox_2proc", f"{process}_"))


@pytest.mark.parametrize("compat", [(), ("--compat", "modelzoo-2.2")])
def test_a_text_shorter_than_a_row_is_kept(compat, world, cases, tmp_path):
    rows = run(world, cases["lm_tiny"], tmp_path, *compat)
    assert rows.shape == (1, 3, 256)
    assert rows[0, 1].tolist() == [1] * 25 + [0] * 231
    assert rows[0, 0, 1:25].tolist() == rows[0, 2, :24].tolist()
    assert (rows[0, 2, 24], rows[0, 0, 25]) == (0, 1), "the end of the text is predicted, then comes padding"


@pytest.mark.parametrize("name", ["lm_neox_fmt_jsongz_obj", "lm_neox_fmt_jsongz_str"])
@pytest.mark.parametrize("compat", [(), ("--compat", "modelzoo-2.2")])
def test_lines_of_objects_and_of_strings(name, compat, shared, world, cases, tmp_path):
    rows = run(world, cases[name], tmp_path, *compat, "--tail", "drop")
    assert np.array_equal(rows, golden(shared, "lm_neox_fmt_jsonl"))


# ------------------------------------------------------------------- what the original cannot do


EOS = "<|endoftext|>"
PADDING = 1
"""Token of neox."""


@pytest.fixture(scope="module")
def neox(shared: Path) -> Tokenizer:
    return Tokenizer.from_file(str(shared / "tokenizers/neox-encoder.json"))


def lines_of(world: Path, folder: str) -> list[dict[str, object]]:
    """Return the records of an input."""
    return [
        json.loads(line)
        for path in sorted((world / "inputs" / folder).iterdir())
        for line in path.read_text().splitlines()
    ]


def text_of(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    return tokenizer.decode(ids.tolist(), skip_special_tokens=False)


def shown(tokenizer: Tokenizer, row: np.ndarray, pad: int = PADDING) -> tuple[str, str]:
    """Return the text of a row of three channels, and what of it is predicted."""
    ids, mask, labels = row
    return text_of(tokenizer, ids[: 1 + np.flatnonzero(ids != pad)[-1]]), text_of(
        tokenizer, labels[mask == 1]
    )


def expected(prompt: str, completion: str) -> tuple[str, str]:
    prompt, completion = ftfy.fix_text(prompt), ftfy.fix_text(completion)
    return f"{prompt}{completion}{EOS}", f"{completion}{EOS}"


def is_whole(record: dict[str, object]) -> bool:
    return bool(record.get("prompt") and record.get("completion"))


COMPAT = pytest.mark.parametrize("compat", [(), ("--compat", "modelzoo-2.2")])


def test_every_case_with_a_sane_result_is_here(cases):
    sane = {name for name, case in cases.items() if str(case["expect"]).startswith("sane result")}
    source = Path(__file__).read_text()
    assert sane
    assert all(f'"{name}"' in source for name in sane)


@pytest.mark.parametrize(
    ("name", "bad", "first"),
    [
        (
            "sum_neox_missing",
            2,
            "pc.jsonl, row 2: unusable record; expected a text in each field that the mode reads, found no text in 'prompt'",
        ),
        (
            "sum_parquet_empty",
            1,
            "a.parquet, row 1: unusable record; expected a text in each field that the mode reads, found no text in 'prompt'",
        ),
    ],
)
def test_pairs_with_a_missing_side_are_named_and_the_others_are_right(
    name, bad, first, world, cases, tmp_path, neox, capsys
):
    """The original pairs prompts with completions of other records, or hangs."""
    if name == "sum_parquet_empty":
        records = pq.read_table(world / "inputs/sum_parquet/a.parquet").to_pylist()
    else:
        records = lines_of(world, "sum_missing")
    right = [expected(one["prompt"], one["completion"]) for one in records if is_whole(one)]
    assert len(records) == len(right) + bad
    counted = {}
    for how, more in {
        "fail": (),
        "quarantine": ("--on_bad_record", "quarantine", "--max_bad_fraction", "0.5"),
        "compat": ("--compat", "modelzoo-2.2"),
    }.items():
        out = tmp_path / how
        with chdir(world):
            status = main(["hdf5", *words_of(cases[name], out, *more), "--json"])
        said = capsys.readouterr().out
        assert status == (1 if how == "fail" else 0)
        if how == "fail":
            assert first in said
            assert not list(out.glob("*.h5"))
            continue
        assert "found no text in 'prompt'" in said or "(no text in 'prompt')" in said
        counted[how] = json.loads(said)["counts"]["records_unusable"]
        rows = load_rows(out, "Summarization").rows
        assert [shown(neox, row) for row in rows] == right
        kept = list(out.glob("_quarantine/**/*.jsonl"))
        assert sum(len(path.read_text().splitlines()) for path in kept) == (bad if how == "quarantine" else 0)
    assert counted == dict.fromkeys(("quarantine", "compat"), bad)


@COMPAT
def test_every_pair_of_a_dialogue_is_a_row(compat, world, cases, tmp_path, neox):
    """ "sum_mt_nonvsl": the original keeps the last pair of each dialogue."""
    rows = run(world, cases["sum_mt_nonvsl"], tmp_path, *compat)
    texts = [message["content"] for one in lines_of(world, "sum_mt") for message in one["messages"]]
    assert [shown(neox, row) for row in rows] == [
        expected(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)
    ]
    assert len(rows) == 276


@COMPAT
def test_a_separator_that_the_vocabulary_lacks(compat, shared, world, cases, tmp_path):
    """The original forgets it."""
    rows = run(world, cases["sum_gpt2_sep"], tmp_path, *compat)
    params = json.loads((tmp_path / "data_params.json").read_text())
    assert params["post-process"]["vocab_size"] == 50258
    files = (str(shared / "tokenizers" / name) for name in ("gpt2-vocab.bpe", "gpt2-encoder.json"))
    gpt2 = Tokenizer.from_str(load_gpt2(*files).read())
    found = []
    for ids, mask, labels in rows:
        (place,) = np.flatnonzero(ids == 50257)
        assert (mask[: place + 1].tolist(), mask[place]) == ([0] * place + [1], 1)
        found.append((text_of(gpt2, ids[:place]), text_of(gpt2, labels[mask == 1]).removesuffix(EOS)))
    given = [
        tuple(ftfy.fix_text(one[key]) for key in ("prompt", "completion")) for one in lines_of(world, "sum")
    ]
    fits = [pair for pair in given if sum(len(gpt2.encode(text).ids) for text in pair) + 2 <= 256]
    assert found == fits
    assert 0 < len(fits) < len(given)


def parts_of(row: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """Return prompt and answer of both sequences of a row of preferences."""
    found = []
    for ids, mask, labels in row.reshape(2, 3, -1):
        places = np.flatnonzero(mask)
        assert np.array_equal(places, np.arange(places[0], places[-1] + 1))
        found.append((ids[: places[0] + 1].tolist(), labels[mask == 1].tolist()))
    return found


@COMPAT
def test_truncated_preferences_keep_what_counts(compat, world, cases, tmp_path):
    """In the original the last position predicts padding, and the end of a document is gone."""
    case, length, most = cases["dpo_neox_trunc"], 48, 16
    whole = run(world, case, tmp_path / "whole", *compat, "--max_seq_length", "2048")
    short = run(world, case, tmp_path / "short", *compat)
    assert len(whole) == len(short) == 158
    head = 1 if compat else 0  # the original's BOS
    for full, cut in zip(map(parts_of, whole), map(parts_of, short), strict=True):
        if max(len(prompt) + len(answer) for prompt, answer in full) <= length:
            assert cut == full
            continue
        for (given, said), (prompt, answer) in zip(full, cut, strict=True):
            tail = given[head:][head - most :] if len(given) > most else given[head:]
            assert prompt == given[:head] + tail
            assert answer == [*said[:-1][: length - len(prompt) - 1], 0]
            assert len(answer) > 1


@COMPAT
def test_preferences_without_a_prompt_of_their_own(compat, world, cases, tmp_path, neox):
    """The original repeats the dialogue."""
    rows = run(world, cases["dpo_neox_noprompt"], tmp_path, *compat, "--max_seq_length", "2048")
    records = lines_of(world, "dpo_noprompt")
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        for key, (prompt, answer) in zip(("chosen", "rejected"), parts_of(row), strict=True):
            asked, _, said = ftfy.fix_text(record[key]).removeprefix("user: ").partition(" assistant: ")
            seen, predicted = (text_of(neox, np.array(part)) for part in (prompt, answer))
            assert seen.removeprefix(EOS) + predicted == f"[INST] {asked} [/INST] {said}{EOS}"
            assert predicted == f"{' [/INST]' if compat else ''} {said}{EOS}"  # it predicts the mark too


def test_rows_no_longer_than_the_prompt_keep_answers(world, cases, tmp_path):
    """The original empties all of them."""
    rows = run(world, cases["dpo_neox"], tmp_path, "--max_seq_length", "32")
    assert len(rows) == 158
    for _, answer in (part for row in rows for part in parts_of(row)):
        assert len(answer) > 1
        assert answer[-1] == 0
