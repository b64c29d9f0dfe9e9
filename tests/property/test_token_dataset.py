"""Rows for training: every token in the rows once in an epoch, one order for any number of processes, and a run that goes on equals one that was never broken."""

import json
import os
import pickle
import tempfile
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dolma_dask as dk
from dolma_dask import errors
from dolma_dask.formats.ragged import RaggedNames, SpecialToken, TokenizerRecord
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.tokens.encoding import Tokens

END, PAD, UNSEEN = 1, 2, -100

SIZES = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=4)
"""Lengths of the documents of each shard."""

KINDS = st.sampled_from(["windows", "stream", "best_fit"])
LABELS = st.sampled_from(["same", "shifted", "none"])
ORDERS = st.sampled_from(["permuted", "blocks", "written"])


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def number_documents(sizes, has_end):
    """Return documents by shard in which every token has an id of its own, but for the end."""
    ids = iter(range(10, 10_000))
    return [[[*islice(ids, size), *([END] if has_end else [])] for size in shard] for shard in sizes]


@contextmanager
def shards(documents, has_end, vocabulary=10_000, name="x"):
    record = TokenizerRecord("f" * 32, None, vocabulary, eos=SpecialToken("</s>", END) if has_end else None)
    with tempfile.TemporaryDirectory() as folder:
        for number, shard in enumerate(documents):
            flat = np.array([token for document in shard for token in document], np.int64)
            names = RaggedNames(f"{name}.{number:05d}-of-{len(documents):05d}")
            with RaggedWriter(folder, names, record) as writer:
                writer.write(Tokens(flat, np.array([len(one) for one in shard], np.int32)))
        yield folder


def opened(folder, length, **options):
    """Return the dataset, or None if the shards are too short for a row."""
    try:
        return dk.TokenDataset(folder, length, pad=PAD, **options)
    except errors.DataError as error:
        if "makes no row" not in str(error):
            raise
        return None


def cut(run, length, labels):
    """Cut a run into rows of inputs, and the labels of each."""
    overlap = labels == "shifted"
    for at in range(0, len(run) - overlap, length):
        inputs, after = run[at : at + length], run[at + 1 : at + length + 1]
        yield inputs, {"same": inputs, "shifted": after, "none": None}[labels]


def padded(inputs, labels, length):
    ids = inputs + [PAD] * (length - len(inputs))
    return ids, None if labels is None else labels + [UNSEEN] * (length - len(labels))


def expected_rows(documents, kind, length, labels, adds_end):
    """Return ids and labels of the rows of windows or of a stream, as lists."""
    if kind == "stream":
        run = [t for shard in documents for one in shard for t in (*one, *([END] if adds_end else []))]
        return [padded(*row, length) for row in cut(run, length, labels)]
    runs = [[token for one in shard for token in one] for shard in documents]
    rows = [row for run in runs for row in cut(run, length, labels)]
    return [row for row in rows if len(row[0]) == length and len(row[1] or row[0]) == length]


def lists(item):
    return tuple(item[name].tolist() if name in item else None for name in ("input_ids", "labels"))


@given(sizes=SIZES, length=st.integers(1, 12), kind=st.sampled_from(["windows", "stream"]), labels=LABELS, has_end=st.booleans(), adds=st.booleans())  # fmt: skip
def test_windows_and_streams_are_those_of_lists(sizes, length, kind, labels, has_end, adds):
    documents = number_documents(sizes, has_end)
    adds_end = adds and not has_end and kind == "stream"
    with shards(documents, has_end) as folder:
        data = opened(folder, length, rows=kind, labels=labels, order="written", eos=END if adds_end or has_end else None)  # fmt: skip
        expected = expected_rows(documents, kind, length, labels, adds_end)
        assert [lists(item) for item in data or ()] == expected


@given(sizes=SIZES, length=st.integers(1, 12), labels=LABELS, has_end=st.booleans(), adds=st.booleans())
def test_packed_rows_lose_no_token_and_keep_documents_apart(sizes, length, labels, has_end, adds):
    documents = number_documents(sizes, has_end)
    whole = [[*one, *([END] if adds and not has_end else [])] for shard in documents for one in shard]
    with shards(documents, has_end) as folder:
        data = opened(folder, length, rows="best_fit", labels=labels, eos=END if adds or has_end else None)
        found = [piece for item in data or () for piece in pieces_of(item, labels)]
    expected = []
    for one in whole:
        for inputs, after in cut(one, length, labels):
            marked = [UNSEEN, *inputs[1:]] if labels == "same" else after
            # the last of those that overlap is a label alone
            inputs = inputs[: len(after)] if labels == "shifted" else inputs
            expected.append((inputs, marked))
    assert sorted(found, key=str) == sorted(expected, key=str)


def pieces_of(item, labels):
    """Yield inputs and labels of each piece of a row; check padding, numbers and positions."""
    ids, segments, positions = (item[name].tolist() for name in ("input_ids", "segment_ids", "position_ids"))
    targets = item["labels"].tolist() if labels != "none" else None
    filled = sum(segment > 0 for segment in segments)
    assert segments[filled:] == positions[filled:] == [0] * (len(ids) - filled)
    assert ids[filled:] == [PAD] * (len(ids) - filled)
    assert targets is None or targets[filled:] == [UNSEEN] * (len(ids) - filled)
    for number in range(1, max(segments) + 1):
        at = [place for place, segment in enumerate(segments) if segment == number]
        assert at == list(range(at[0], at[-1] + 1))
        assert [positions[place] for place in at] == list(range(len(at)))
        yield [ids[place] for place in at], targets and [targets[place] for place in at]


def contents(items):
    return [{name: array.tobytes() for name, array in item.items()} for item in items]


RUNS = st.fixed_dictionaries(
    {
        "rows": KINDS,
        "labels": LABELS,
        "order": ORDERS,
        "seed": st.integers(0, 2**64 - 1),
        "epochs": st.integers(1, 3),
    }
)


@given(sizes=SIZES, length=st.integers(1, 6), options=RUNS, world_size=st.integers(1, 5), batch=st.integers(1, 4), workers=st.integers(1, 3))  # fmt: skip
def test_one_order_for_any_number_of_processes(sizes, length, options, world_size, batch, workers):
    with shards(number_documents(sizes, True), True) as folder:
        data = opened(folder, length, **options)
        if data is None:
            return
        whole = contents(data)
        assert len(whole) == len(data)
        assert (
            contents(data[k] for k in range(-len(data), 0))
            == whole
            == contents(data.__getitems__(range(len(data))))
        )
        epoch = len(whole) // options["epochs"]
        for first in range(0, len(whole), epoch):
            assert sorted(map(str, whole[first : first + epoch])) == sorted(map(str, whole[:epoch]))
        ranks = [
            opened(folder, length, **options, rank=rank, world_size=world_size) for rank in range(world_size)
        ]
        for rank, one in enumerate(ranks):
            assert contents(one) == whole[rank::world_size]
        assert dealt(ranks, batch, workers, whole) == whole
        steps = len(whole) // (batch * world_size)
        for one in ranks:
            kept = list(one.batches(batch, drop_last=True))
            assert [len(item["input_ids"]) for item in kept] == [batch] * steps


def dealt(ranks, size, workers, whole):
    """Return the samples of all ranks, whose workers take turns, step by step."""
    loaders = [
        [rank.batches(size, worker=worker, workers=workers) for worker in range(workers)] for rank in ranks
    ]
    found, turn = [], 0
    while len(found) < len(whole):
        for loader in loaders:
            batch = next(loader[turn % workers], {"input_ids": ()})
            found += [
                {name: array[row].tobytes() for name, array in batch.items()}
                for row in range(len(batch["input_ids"]))
            ]
        turn += 1
    assert all(next(one, None) is None for loader in loaders for one in loader)
    return found


@given(sizes=SIZES, length=st.integers(1, 6), options=RUNS, world_sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())  # fmt: skip
def test_a_broken_run_equals_one_that_was_not(sizes, length, options, world_sizes, data):
    """However often it is broken, and on how many processes it goes on."""
    with shards(number_documents(sizes, True), True) as folder:
        if (unbroken := opened(folder, length, **options)) is None:
            return
        whole, found, state = contents(unbroken), [], unbroken.state_dict(0)
        for world_size in [*world_sizes, 1]:
            ranks = [
                opened(folder, length, **options, rank=rank, world_size=world_size)
                for rank in range(world_size)
            ]
            for rank in ranks:
                rank.load_state_dict(state)
            left = len(whole) - len(found)
            steps = data.draw(st.integers(0, left // world_size)) if world_size > 1 else left
            taken = [contents(islice(iter(rank), steps)) for rank in map(again, ranks)]
            found += [item for step in zip(*taken, strict=True) for item in step]
            runs = [iter(rank) for rank in ranks]
            for run in runs:
                list(islice(run, steps))
            states = [rank.state_dict() for rank in ranks] if steps else [state]
            assert all(one == states[0] for one in states)
            assert states[0]["samples"] == len(found)
            state = states[0]
        assert found == whole


def again(dataset):
    return pickle.loads(pickle.dumps(dataset))


@given(first=SIZES, second=SIZES, weights=st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)), options=RUNS)
def test_each_of_several_folders_goes_through_whole_epochs(first, second, weights, options):
    documents = number_documents([*first, *second], False)  # no two rows are alike
    halves = documents[: len(first)], documents[len(first) :]
    with shards(halves[0], False) as a, shards(halves[1], False) as b:
        alone = [opened(folder, 3, **options) for folder in (a, b)]
        if None in alone:
            return
        both = opened([a, b], 3, weights=weights, **options)
        items = contents(both)
        rows = [set(map(str, contents(one))) for one in alone]
        count, epochs = [len(one) // options["epochs"] for one in alone], options["epochs"]
        seen = [[item for item in map(str, items) if item in ours] for ours in rows]
        assert sum(map(len, seen)) == len(items)
        assert any(len(one) == epochs * size for one, size in zip(seen, count, strict=True)) or (
            len(both) + 1 > min(epochs * size for size in count)
        )
        for ours, size in zip(seen, count, strict=True):
            assert len(ours) <= epochs * size
            for at in range(0, len(ours), size):
                part = ours[at : at + size]
                assert len(set(part)) == len(part)
        together = opened([a, b], 3, **options)
        assert len(together) == epochs * sum(count)
        assert set(map(str, contents(together))) == rows[0] | rows[1]


@given(options=RUNS, weights=st.none() | st.just([1.0]))
def test_a_state_is_of_its_shards_and_options_alone(options, weights):
    with shards(number_documents([[7, 9], [8]], True), True) as folder:
        data = dk.TokenDataset(folder, 4, **options, weights=weights)
        state = data.state_dict(2)
        assert again(data).fingerprint == data.fingerprint
        for name, value in {"seed": options["seed"] ^ 1, "rows": "other", "labels": "other"}.items():
            choices = {"rows": ("windows", "stream"), "labels": ("same", "shifted")}
            others = [one for one in choices.get(name, (value,)) if one != options[name]]
            other = dk.TokenDataset(folder, 4, **{**options, name: others[0]}, weights=weights)
            with pytest.raises(errors.UsageError, match=f"another run: .*{name}"):
                other.load_state_dict(state)
        moved = dk.TokenDataset(folder, 4, **{**options, "epochs": 3}, weights=weights, rank=1, world_size=2)
        moved.load_state_dict(state)
        assert moved.start == 2
        data.load_state_dict(state)
        assert contents(again(data)) == contents(data) == contents(data[k] for k in range(2, len(data)))
    with shards(number_documents([[7, 9], [9]], True), True) as folder:
        longer = dk.TokenDataset(folder, 4, **options, weights=weights)
    with pytest.raises(errors.UsageError, match="another run: shards"):
        longer.load_state_dict(state)


@given(sizes=SIZES, length=st.integers(1, 6), options=RUNS, per_file=st.integers(1, 9), world_size=st.integers(1, 3))  # fmt: skip
def test_rows_as_parquet_are_the_samples_without_padding(sizes, length, options, per_file, world_size):
    with shards(number_documents(sizes, True), True) as folder, tempfile.TemporaryDirectory() as to:
        data = opened(folder, length, **options)
        if data is None:
            return
        names = [
            name
            for rank in range(world_size)
            for name in opened(folder, length, **options, rank=rank, world_size=world_size).write_parquet(
                to, rows_per_file=per_file
            )
        ]
        assert sorted(names) == sorted(path.name for path in Path(to).iterdir())
        rows = pq.ParquetDataset(to).read().to_pylist()
        plain = opened(folder, length, **{**options, "labels": "same"})
        assert [padded(row["input_ids"], None, length)[0] for row in rows] == [
            item["input_ids"].tolist() for item in plain
        ]
        assert all(len(row["input_ids"]) == row["length"] for row in rows)
        if options["rows"] == "best_fit":
            found = [[len(ids) for ids, _ in pieces_of(item, "same")] for item in plain]
            assert [row["seq_lengths"] for row in rows] == found
        before = {path: path.stat().st_ino for path in Path(to).iterdir()}
        first = sorted(before)[0]
        first.write_bytes(first.read_bytes()[:-9])
        assert data.write_parquet(to, rows_per_file=per_file) == [first.name]
        after = {path: path.stat().st_ino for path in before}
        assert {path for path in before if before[path] == after[path]} >= before.keys() - {first}


def test_endless_epochs_have_no_length_but_each_sample():
    with shards(number_documents([[7, 9]], True), True) as folder:
        data = dk.TokenDataset(folder, 4, epochs=None)
        with pytest.raises(TypeError, match="no length"):
            len(data)
        rows = contents(islice(data, 4 * 50))
        assert contents([data[199]]) == rows[199:]
        epochs = [rows[at : at + 4] for at in range(0, 200, 4)]
        assert all(sorted(map(str, one)) == sorted(map(str, epochs[0])) for one in epochs)
        assert len({str(one) for one in epochs}) > 10


@pytest.mark.parametrize("dtype", [np.int32, "int16", np.uint32])
def test_types(dtype):
    with shards([[[5, 6, 7, 8]]], False) as folder:
        data = dk.TokenDataset(folder, 2, dtype=dtype, labels="none", order="written")
        assert [item["input_ids"].dtype for item in data] == [np.dtype(dtype)] * 2
        assert [item["input_ids"].tolist() for item in data] == [[5, 6], [7, 8]]


@pytest.mark.parametrize("stored", ["<i2", "<u2", "<i4", "<u4", "<i8", "|u1", "|i1"])
def test_ids_of_any_type(stored, tmp_path):
    ids = np.array([0, 1, 100, 127, 5, *((-1,) if np.dtype(stored).kind == "i" else (200,))], stored)
    np.save(tmp_path / "a.data.npy", ids)
    np.save(tmp_path / "a.len.npy", np.array([2, 4], "<i8"))
    data = dk.TokenDataset(str(tmp_path), 3, order="written", labels="shifted", rows="stream", pad=9)
    assert [item["input_ids"].tolist() for item in data] == [ids[:3].tolist(), ids[3:].tolist()]
    assert [item["labels"].tolist() for item in data] == [ids[1:4].tolist(), [*ids[4:].tolist(), UNSEEN]]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"seq_length": 0}, "seq_length=0; expected a whole number, 1 to 1073741824"),
        ({"seed": True}, "seed=True; expected a whole number"),
        ({"weights": ["1"]}, "expected a number above 0"),
        ({"dtype": "junk"}, "dtype='junk' is no data type"),
        ({"dtype": ">i8"}, "byte order of this machine"),
        ({"pad": 40_000, "dtype": np.int16}, "pad=40000; expected a whole number, -32768 to 32767"),
        ({"pad": 1.5}, "pad=1.5; expected a whole number"),
        ({"eos": 40_000, "dtype": np.int16, "rows": "stream"}, "whole numbers up to 40,000"),
        ({"seq_length": 40_000, "dtype": np.int16, "rows": "best_fit"}, "whole numbers up to 40,000"),
        ({"rank": 2, "world_size": 2}, "rank=2; expected a whole number, 0 to 1"),
        ({"order": "random"}, "order='random'; expected one of permuted, blocks, written"),
        ({"rows": "packed"}, "expected one of windows, stream, best_fit"),
        ({"weights": [1, 2]}, "of 1 folders; expected a number above 0 for each"),
        ({"weights": [0]}, "expected a number above 0"),
        ({"dtype": np.uint16}, "below 0 for labels"),
        ({"dtype": np.int8}, "whole numbers up to 9,999"),
        ({"eos": END}, "rows='windows', which are cut out of the shards as they are"),
        ({"epochs": 0}, "epochs=0; expected"),
    ],
)
def test_options_that_do_not_go(options, message):
    with shards([[[5, 6, 7, 8]]], False) as folder, pytest.raises(errors.UsageError, match=message):
        dk.TokenDataset(folder, **{"seq_length": 2, **options})


def test_numbers_of_numpy_are_numbers():
    with shards([[[5, 6, 7, 8]]], False) as folder:
        plain = dk.TokenDataset(folder, 2, seed=3, weights=[2], epochs=2)
        numpy = dk.TokenDataset(
            folder, np.int64(2), seed=np.int64(3), weights=np.array([2]), epochs=np.int8(2)
        )
        assert numpy.state_dict() == plain.state_dict()
        assert json.loads(json.dumps(numpy.state_dict())) == plain.state_dict()


def test_samples_by_number_list_and_slice():
    with shards([[[5, 6, 7, 8]]], False) as folder:
        data = dk.TokenDataset(folder, 2)
        assert contents(data[:]) == contents(data.__getitems__([0, 1])) == contents([data[0], data[-1]])
        assert data.__getitems__([]) == data[2:] == []
        assert data.read([])["input_ids"].shape == (0, 2)
        with pytest.raises(TypeError, match="samples of type float64"):
            data.read([0.5])
        with pytest.raises(errors.UsageError, match="workers=0"):
            next(data.batches(1, workers=0))


def test_long_rows_are_packed_as_full_as_short_ones():
    sizes = np.random.default_rng(1).integers(1, 2000, 3000)
    with shards([[[5] * size for size in sizes.tolist()]], False) as folder:
        data = dk.TokenDataset(folder, 1 << 17, rows="best_fit")
        assert len(data) == -(-sizes.sum() // (1 << 17))


@pytest.mark.parametrize("lengths, error", [([3, 9], "add up to 12"), ([1, 1], "add up to 2"), ([9, -4], "length -4")])  # fmt: skip
@pytest.mark.parametrize("rows", ["best_fit", "stream"])
def test_lengths_of_other_ids_make_no_rows(lengths, error, rows, tmp_path):
    np.save(tmp_path / "a.data.npy", np.arange(5, dtype="<i2"))
    np.save(tmp_path / "a.len.npy", np.array(lengths, "<i4"))
    with pytest.raises(errors.DataError, match=error):
        list(dk.TokenDataset(tmp_path, 2, rows=rows, eos=9))


@pytest.mark.parametrize("damage", [lambda old: old[: len(old) // 2], lambda old: b"", lambda old: bytes(len(old)), lambda old: old[:-40] + b"?" + old[-39:]])  # fmt: skip
def test_a_damaged_file_of_the_cache_is_made_again(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with shards(number_documents([[7, 1, 0, 9], [3]], True), True) as folder:
        for path in Path(folder).iterdir():
            os.utime(path, (1e9, 1e9))

        def found():
            rows = contents(dk.TokenDataset(folder, 4, rows="best_fit"))
            return rows, [one.tolist() for one in dk.open_ragged(folder)[:]]

        wanted = found()
        kept = [path for path in tmp_path.rglob("*") if path.suffix in (".shards", ".marks", ".rows")]
        assert len(kept) == 3
        stored = [path.read_bytes() for path in kept]
        for path, content in zip(kept, stored, strict=True):
            path.unlink()
            path.write_bytes(damage(content))
        assert found() == wanted
        assert [path.read_bytes() for path in kept] == stored


def test_parquet_of_a_run_without_labels_in_numbers_without_a_sign(tmp_path):
    with shards([[[5, 6, 7, 8, 9, 10]]], False) as folder:
        dk.TokenDataset(folder, 2, order="written", labels="none", dtype="uint32").write_parquet(tmp_path)
    (path,) = tmp_path.iterdir()
    assert pq.read_table(path)["input_ids"].to_pylist() == [[5, 6], [7, 8], [9, 10]]


def test_parquet_of_another_number_of_files_is_refused(tmp_path):
    with shards([[[5, 6, 7, 8, 9, 10]]], False) as folder:
        data = dk.TokenDataset(folder, 2)
        data.write_parquet(tmp_path, rows_per_file=2)
        with pytest.raises(errors.UsageError, match=r"rows\.00000-of-00002\.parquet of another call"):
            data.write_parquet(tmp_path, rows_per_file=1)
        assert data.write_parquet(tmp_path, rows_per_file=2) == []


def test_another_end_than_that_of_the_shards():
    with shards([[[5, 6, 7, 8, END]]], True) as folder:
        with pytest.raises(errors.UsageError, match="eos=3, and the documents of the shards end in 1"):
            dk.TokenDataset(folder, 2, eos=3)
        with pytest.raises(errors.UsageError, match="no state of a TokenDataset"):
            dk.TokenDataset(folder, 2).load_state_dict({"step": 3})


def test_pickles_are_small_and_files_may_change_no_more(tmp_path):
    with shards([[[5, 6, 7, 8, END]] * 50] * 3, True) as folder:
        data = dk.TokenDataset(folder, 2, rows="best_fit")
        data[0]
        assert len(pickle.dumps(data)) < 2000
        pickled = pickle.dumps(data)
        path = next(Path(folder).glob("*00001-of*data.npy"))
        path.with_name(path.name.replace("data.npy", "json")).unlink()
        with pytest.raises(errors.DataError, match="holds other shards than where it was opened first"):
            pickle.loads(pickled)
