"""Plain readers of the formats of token files, as their layouts say: oracles of the writers."""

import csv
import gzip
import json
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dolma_dask.formats.token_files import FORMATS


def cut(ids: np.ndarray, ends: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(ids, ends)[: len(ends)]]


def read_numpy(stem: str) -> list[list[int]]:
    lengths = np.load(f"{stem}.len.npy")
    return cut(np.load(f"{stem}.data.npy"), np.cumsum(lengths, dtype=np.int64))


def read_parquet(stem: str) -> list[list[int]]:
    rows = pq.read_table(f"{stem}.parquet").to_pylist()
    assert all(len(row["input_ids"]) == row["length"] for row in rows)
    return [row["input_ids"] for row in rows]


def read_dolma(stem: str) -> list[list[int]]:
    ids = np.fromfile(f"{stem}.npy", json.loads(Path(f"{stem}.json").read_text())["dtype"])
    with gzip.open(f"{stem}.csv.gz", "rt", newline="") as lines:
        rows = [(int(start), int(end)) for start, end, *_ in csv.reader(lines)]
    assert not rows or [0, *(end for _, end in rows)] == [*(start for start, _ in rows), ids.size]
    return [ids[start:end].tolist() for start, end in rows]


def read_megatron(stem: str) -> list[list[int]]:
    index = Path(f"{stem}.idx").read_bytes()
    magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version, documents) == (b"MMIDIDX\0\0", 1, sequences + 1)
    dtype = {8: np.dtype("<u2"), 4: np.dtype("<i4")}[code]
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    bounds = np.frombuffer(index, "<i8", documents, 34 + 12 * sequences)
    assert len(index) == 34 + 20 * sequences + 8
    assert bounds.tolist() == list(range(documents))
    ids = Path(f"{stem}.bin").read_bytes()
    assert len(ids) == lengths.sum(dtype=np.int64) * dtype.itemsize
    return [
        np.frombuffer(ids, dtype, length, pointer).tolist()
        for length, pointer in zip(lengths, pointers, strict=True)
    ]


def read_datatrove(stem: str) -> list[list[int]]:
    about, count, _ = Path(f"{stem}.ds.metadata").read_text().split("\n")
    ids = np.fromfile(f"{stem}.ds", {"2": "<u2", "4": "<u4"}[about.rpartition("|")[2]])
    assert ids.size == int(count)
    return cut(ids, np.fromfile(f"{stem}.ds.index", "<u8").astype(np.int64))


def read_mds(stem: str) -> list[list[int]]:
    data = Path(f"{stem}.mds").read_bytes()
    (count,) = struct.unpack_from("<I", data)
    places = struct.unpack_from(f"<{count + 1}I", data, 4)
    config = json.loads(data[4 * (count + 2) : places[0]])
    assert (config["column_names"], config["column_encodings"]) == (
        ["id", "tokens"],
        ["str", "ndarray:int32"],
    )
    assert places[-1] == len(data)
    documents = []
    for start, end in pairwise(places):
        of_id, of_tokens = struct.unpack_from("<II", data, start)
        assert start + 8 + of_id + of_tokens == end
        at = start + 8 + of_id
        assert data[at] >> 2 == 1
        form = "<" + "BHI"[data[at] & 3]
        (length,) = struct.unpack_from(form, data, at + 1)
        assert end - at == 1 + struct.calcsize(form) + 4 * length
        documents.append(np.frombuffer(data, "<i4", length, end - 4 * length).tolist())
    return documents


READERS = {
    "mds": read_mds,
    "numpy": read_numpy,
    "parquet": read_parquet,
    "dolma": read_dolma,
    "megatron": read_megatron,
    "datatrove": read_datatrove,
}


def read_all(folder: Path, name: str) -> list[list[int]]:
    """Return the ids of all documents of a folder."""
    data = FORMATS[name].data
    found = sorted(str(path).removesuffix(data) for path in folder.glob(f"*{data}"))
    return [ids for stem in found for ids in READERS[name](stem)]
