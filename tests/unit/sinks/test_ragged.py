"""A shard appears whole, last, and with the bytes of `numpy.save`."""

import tempfile
from pathlib import Path

import fsspec
import numpy as np
import pytest
import xxhash

from dolma_dask.errors import DataError, DiskFullError, UsageError
from dolma_dask.formats.ragged import RaggedNames, SourceRecord, SpecialToken, TokenizerRecord, parse_sidecar
from dolma_dask.sinks import ragged as writer_module
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.tokens.encoding import Tokens

NAMES = RaggedNames("wiki.00001-of-00003")
RECORD = TokenizerRecord("f" * 32, "t.json", 50_277, eos=SpecialToken("<|endoftext|>", 0))
SOURCE = SourceRecord("documents/a.jsonl.gz", {"ids_digest": "aa", "content_digest": "bb"})


def batch(*documents: list[int], dtype: str = "<u2") -> Tokens:
    flat = [token for document in documents for token in document]
    return Tokens(np.array(flat, dtype), np.array([len(document) for document in documents], np.int32))


def write(folder: Path, *batches: Tokens, record: TokenizerRecord = RECORD) -> RaggedWriter:
    with RaggedWriter(str(folder), NAMES, record, source=SOURCE) as writer:
        for tokens in batches:
            writer.write(tokens)
    return writer


def saved(path: Path, array: np.ndarray) -> bytes:
    np.save(path, array)
    return path.read_bytes()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_are_those_of_numpy_save(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = write(out, batch([1, 2], []), batch(), batch([40_000]))
    assert names_in(out) == sorted([NAMES.data, NAMES.lengths, NAMES.sidecar])
    assert (out / NAMES.data).read_bytes() == saved(tmp_path / "d.npy", np.array([1, 2, 40_000], "<u2"))
    assert (out / NAMES.lengths).read_bytes() == saved(tmp_path / "l.npy", np.array([2, 0, 1], "<i4"))
    assert [(file.path, file.bytes, file.checksum) for file in result.files] == [
        (name, (out / name).stat().st_size, xxhash.xxh3_128_hexdigest((out / name).read_bytes()))
        for name in (NAMES.data, NAMES.lengths, NAMES.sidecar)
    ]


def test_the_record_says_what_the_files_are(tmp_path: Path) -> None:
    result = write(tmp_path, batch([1, 2], []), batch([40_000, 3]))
    sidecar = parse_sidecar((tmp_path / NAMES.sidecar).read_bytes(), "x")
    assert sidecar == result.sidecar
    assert (sidecar.documents, sidecar.tokens, sidecar.max_id, sidecar.dtype) == (3, 4, 40_000, "<u2")
    assert (sidecar.tokenizer, sidecar.source) == (RECORD, SOURCE)
    for name, digest in ((NAMES.data, sidecar.checksums["data"]), (NAMES.lengths, sidecar.checksums["len"])):
        assert xxhash.xxh3_128_hexdigest((tmp_path / name).read_bytes()) == digest


def test_an_object_store_gets_the_same_bytes(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    write(tmp_path, batch([1, 2], []))
    for _ in range(2):
        with RaggedWriter("memory://ragged-writer", NAMES, RECORD, source=SOURCE) as writer:
            writer.write(batch([1, 2], []))
    for name in (NAMES.data, NAMES.lengths, NAMES.sidecar):
        assert store.cat(f"/ragged-writer/{name}") == (tmp_path / name).read_bytes()
    store.rm("/ragged-writer", recursive=True)


def test_a_shard_without_documents_is_valid(tmp_path: Path) -> None:
    result = write(tmp_path)
    assert np.load(tmp_path / NAMES.data).shape == np.load(tmp_path / NAMES.lengths).shape == (0,)
    assert result.sidecar.max_id is None


@pytest.mark.parametrize("wrong", [50_277, 65_536 + 7, -1])
def test_an_id_outside_of_the_vocabulary_ends_the_run(tmp_path: Path, wrong: int) -> None:
    with pytest.raises(DataError, match=rf"token 2 of the batch has id {wrong}, expected 0 to 50276"):
        write(tmp_path, batch([1]), batch([5], [6, wrong], dtype="<i8"))
    assert names_in(tmp_path) == []


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    def failing_writer() -> None:
        with RaggedWriter(str(tmp_path), NAMES, RECORD) as writer:
            writer.write(batch([1, 2]))
            raise KeyError("stop")

    with pytest.raises(KeyError):
        failing_writer()
    assert names_in(tmp_path) == []


def test_ids_appear_last_and_old_ids_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, batch([1, 2]))
    seen: list[tuple[str, list[str]]] = []
    original = writer_module.publish_later

    def watched(url: str) -> object:
        seen.append((Path(url).name, [name for name in names_in(tmp_path) if not name.startswith(".")]))
        return original(url)

    monkeypatch.setattr(writer_module, "publish_later", watched)
    write(tmp_path, batch([3]))
    assert [name for name, _ in seen] == [NAMES.lengths, NAMES.data, NAMES.sidecar]
    assert all(NAMES.data not in visible for _, visible in seen)


def test_a_failure_before_the_last_file_leaves_no_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, batch([1, 2]))
    original = writer_module.publish_later

    def failing(url: str) -> object:
        if url.endswith(".json"):
            raise OSError("disk full")
        return original(url)

    monkeypatch.setattr(writer_module, "publish_later", failing)
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path, batch([3]))
    assert not (tmp_path / NAMES.data).exists()


def test_a_file_of_documents_is_not_overwritten_by_a_record(tmp_path: Path) -> None:
    documents = tmp_path / NAMES.sidecar
    documents.write_text('{"text": "a"}\n{"text": "b"}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="not the record of a token shard; write to another folder"):
        write(tmp_path, batch([1]))
    assert names_in(tmp_path) == [NAMES.sidecar]
    assert documents.read_text(encoding="utf-8").startswith('{"text": "a"}')


@pytest.mark.parametrize("left", [0, 9, 200])
def test_a_torn_record_is_written_again(tmp_path: Path, left: int) -> None:
    write(tmp_path, batch([1]))
    whole = (tmp_path / NAMES.sidecar).read_bytes()
    (tmp_path / NAMES.sidecar).write_bytes(whole[:left])
    write(tmp_path, batch([1]))
    assert (tmp_path / NAMES.sidecar).read_bytes() == whole


def test_a_full_disk_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, data: object) -> None:
            raise OSError(28, "No space left on device")

    with RaggedWriter(str(tmp_path), NAMES, RECORD) as writer, monkeypatch.context() as patch:
        patch.setattr(writer._ids, "_file", Full())
        message = f"{tempfile.gettempdir()}: No space left on device; .*Set TMPDIR"
        with pytest.raises(DiskFullError, match=message):
            writer.write(batch([1]))
