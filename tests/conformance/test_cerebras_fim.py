"""Rows of create_hdf5_dataset, mode FIM, from those of LMData and the draws that the original made."""

import json
import tarfile
from contextlib import chdir
from pathlib import Path

import h5py
import numpy as np
import pytest

from dolma_dask.pipelines.hdf5_options import create_hdf5_dataset
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.fim import Fim, fim_rows, like_modelzoo

pytestmark = pytest.mark.conformance

OWN = ("--fim_prefix_tok", "--fim_middle_tok", "--fim_suffix_tok", "--fim_rate", "--spm_rate", "--jsonl_key")
"""Options that LMData does not have, or has otherwise."""


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


def rows_of(paths: list[Path]) -> np.ndarray:
    arrays = []
    for path in paths:
        with h5py.File(path) as file:
            arrays.append(file["data"][:])
    return np.concatenate(arrays)


def arguments(shared: Path, name: str) -> tuple[dict[str, str], int]:
    """Return the options of a case by name, and the seed of NumPy's global generator."""
    lines = (shared / "conformance/cerebras/cases.jsonl").read_text().splitlines()
    case = next(case for case in map(json.loads, lines) if case["case"] == name)
    return dict(zip(case["argv"][::2], case["argv"][1::2], strict=True)), int(case["numpy_seed"])


def lm_rows(world: Path, options: dict[str, str], out: Path) -> np.ndarray:
    words = [word for name, value in options.items() if name not in OWN for word in (name, value)]
    like = ["--output_dir", str(out), "--display_pbar", "False", "--compat", "modelzoo-2.2", "--tail", "drop"]
    with chdir(world):
        create_hdf5_dataset(["LMData", *words, *like, "--scheduler", "synchronous"])
    return rows_of(sorted(out.glob("*.h5")))


@pytest.mark.parametrize("name", ["fim_neox", "fim_neox_ar", "fim_neox_psm", "fim_neox_spm"])
def test_rows_of_the_original(name, shared, world, tmp_path):
    options, seed = arguments(shared, name)
    before = lm_rows(world, options, tmp_path)
    engine = load_tokenizer(shared / "tokenizers" / Path(options["--encoder_file"]).name)
    fim = Fim(
        rate=float(options.get("--fim_rate", 0.9)),
        spm_rate=float(options.get("--spm_rate", 0.5)),
        prefix=engine.token_id(options["--fim_prefix_tok"]),
        middle=engine.token_id(options["--fim_middle_tok"]),
        suffix=engine.token_id(options["--fim_suffix_tok"]),
        eos=engine.token_id("<|endoftext|>"),
        pad=engine.token_id("<|padding|>"),
    )
    filled = np.full(len(before), before.shape[2])
    made = fim_rows(before[:, 0], filled, 0, engine, fim, like_modelzoo(fim, seed))
    paths = (shared / "conformance/cerebras/cases" / name).glob("output_chunk_*.h5")
    expected = rows_of(sorted(paths, key=lambda path: int(path.stem.rsplit("_", 1)[-1])))
    assert np.array_equal(made.rows, expected)
    assert not made.pads.any()
