"""Rows of create_hdf5_dataset, mode LMData: ours are the same, or what its documentation promises where it is defective."""

import json
import os
import tarfile
from contextlib import chdir
from pathlib import Path

import h5py
import numpy as np
import pytest

from dolma_dask.pipelines.hdf5_options import create_hdf5_dataset

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
    return folder


@pytest.fixture(scope="module")
def cases(shared: Path) -> dict[str, Case]:
    lines = (shared / "conformance/cerebras/cases.jsonl").read_text().splitlines()
    return {case["case"]: case for case in map(json.loads, lines)}


def run(world: Path, case: Case, out: Path, *more: str) -> np.ndarray:
    """Run a case with the original's own arguments and return our rows."""
    argv = [str(word) for word in case["argv"]]
    words = [str(case["mode"]), *argv, "--output_dir", str(out), "--display_pbar", "False", *more]
    with chdir(world):
        create_hdf5_dataset([*words, "--scheduler", "synchronous"])
    return rows_of(sorted(out.glob("*.h5")))


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
