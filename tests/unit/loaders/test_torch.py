"""Token datasets in torch's DataLoader: the batches of the arrays, in one order for any number of workers, broken or not; skipped where torch is not installed."""

import pickle
import sys

import numpy as np
import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.formats.ragged import RaggedNames, TokenizerRecord
from dolma_dask.loaders import torch_tokens
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.tokens.encoding import Tokens


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lengths = np.array([40, 7, 100, 3, 25, 60, 1, 80], np.int32)
    for number in range(2):
        ids = np.arange(lengths.sum()) + 1000 * number
        with RaggedWriter(
            str(tmp_path / "tokens"), RaggedNames(f"x.{number}-of-2"), TokenizerRecord("f", None, 5000)
        ) as writer:
            writer.write(Tokens(ids, lengths))
    return str(tmp_path / "tokens")


def test_without_torch_the_package_is_named(folder, monkeypatch):
    for name in ("torch", "torch.utils.data"):
        monkeypatch.setitem(sys.modules, name, None)
    torch_tokens._torch_class.cache_clear()
    with pytest.raises(UsageError, match="torch_dataset needs the package torch"):
        dk.torch_dataset(dk.TokenDataset(folder, 8), 2)


def lists(batches):
    return [{name: tensor.tolist() for name, tensor in batch.items()} for batch in batches]


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("rows", ["windows", "stream", "best_fit"])
@pytest.mark.filterwarnings("ignore")
def test_batches_are_those_of_arrays_for_any_number_of_workers(folder, rows, workers):
    data_module = pytest.importorskip("torch.utils.data")
    data = dk.TokenDataset(folder, 8, rows=rows, seed=3, rank=1, world_size=2)
    expected = lists(data.batches(3, drop_last=True))
    tokens = dk.torch_dataset(data, 3)
    assert len(tokens) == len(expected)
    loader = data_module.DataLoader(tokens, batch_size=None, num_workers=workers)
    assert lists(loader) == expected
    # broken after three steps, and gone on with by another process alone
    moved = dk.torch_dataset(dk.TokenDataset(folder, 8, rows=rows, seed=3), 6)
    moved.load_state_dict(pickle.loads(pickle.dumps(tokens.state_dict(3))))
    rest = lists(data_module.DataLoader(moved, batch_size=None, num_workers=workers))
    assert [batch["input_ids"][3:] for batch in rest] == [batch["input_ids"] for batch in expected[3:]]


@pytest.mark.filterwarnings("ignore")
def test_no_dataset_and_no_number(folder):
    pytest.importorskip("torch")
    data = dk.TokenDataset(folder, 7)
    with pytest.raises(UsageError, match="type str; expected a TokenDataset"):
        dk.torch_dataset(folder, 4)
    with pytest.raises(UsageError, match="batch_size=0; expected a whole number, 1 or more"):
        dk.torch_dataset(data, 0)
    with pytest.raises(UsageError, match="steps=-1"):
        dk.torch_dataset(data, 4).state_dict(-1)


def test_workers_that_are_not_forked(folder):
    data_module = pytest.importorskip("torch.utils.data")
    tokens = dk.torch_dataset(dk.TokenDataset(folder, 8, rows="best_fit"), 3, drop_last=False)
    loader = data_module.DataLoader(tokens, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert lists(loader) == lists(tokens)
    assert len(tokens) == len(lists(tokens))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("most", [0, 1 << 19])
def test_what_a_function_of_the_user_does_to_batches_arrives(folder, most, monkeypatch):
    """Whether they go through the pipe or torch's shared memory."""
    data_module = pytest.importorskip("torch.utils.data")
    monkeypatch.setattr(torch_tokens, "_PIPE_BYTES", most)
    tokens = dk.torch_dataset(dk.TokenDataset(folder, 8), 3)

    def add(batch):
        batch["more"] = batch["input_ids"] + 1
        batch["labels"] = batch["labels"][:1]
        return batch

    found = lists(data_module.DataLoader(tokens, batch_size=None, num_workers=2, collate_fn=add))
    assert found == lists(map(add, tokens))
    (plain, *_) = data_module.DataLoader(tokens, batch_size=None, num_workers=1)
    assert type(plain) is dict
    plain["input_ids"][0, 0] = 7  # the loader's own memory


@pytest.mark.filterwarnings("ignore")
def test_samples_by_number_and_tensors_of_one_memory(folder):
    torch = pytest.importorskip("torch")
    data = dk.TokenDataset(folder, 8)
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=range(2, 10), num_workers=2)
    assert lists(loader)[0]["input_ids"] == [data[k]["input_ids"].tolist() for k in range(2, 6)]
    (batch, *_) = dk.torch_dataset(data, 4)
    assert batch["input_ids"].dtype is torch.int64
    assert batch["input_ids"].is_contiguous()
