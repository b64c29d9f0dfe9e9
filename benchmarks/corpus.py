"""The documents that benchmarks work on, made once below ``build/bench``.

Two origins. ``collected``: what the demo collects from this Python installation, about 8 MB of English. ``shared``: the reference corpus
of ``$DOLMA_DASK_SHARED``, 20 MB in eighteen languages. Either is repeated, each time with other ids, up to 100 MB of text in eight
files of one gzip member (level 6, as published corpora are). Copies lie far enough apart for no compressor or cache to notice.
"""

import gzip
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
FILES = 8
MEGABYTES = 100
QUICK_MEGABYTES = 16
WARM_DOCUMENTS = 200


@dataclass(frozen=True)
class Corpus:
    """A corpus: its place and its size.

    Below `root` are the datasets ``all`` (every file), ``few`` (two of the eight files), ``warm`` (some documents, to warm up) and
    ``raw``: the files of ``all`` with other field names.
    """

    origin: str
    root: str
    documents: int
    text_mb: float
    json_mb: float
    few_documents: int
    few_mb: float

    def dataset(self, name: str) -> str:
        """Return the root of a dataset."""
        return f"{self.root}/{name}"

    def files(self, name: str = "all") -> list[str]:
        """Return the document files of a dataset."""
        return sorted(str(path) for path in Path(self.root, name, "documents").glob("*.gz"))


def shared_folder() -> Path:
    """Return the folder of the reference data, if it is on this machine."""
    return Path(os.environ.get("DOLMA_DASK_SHARED", ROOT.parent / "shared"))


def default_origin() -> str:
    """Return ``shared`` where the reference corpus is, else ``collected``."""
    return "shared" if (shared_folder() / "corpus" / "documents").is_dir() else "collected"


def open_corpus(origin: str, quick: bool) -> Corpus:
    """Return the corpus; make it if it is not there."""
    megabytes = QUICK_MEGABYTES if quick else MEGABYTES
    root = BUILD / f"{origin}-{megabytes}"
    known = root / "corpus.json"
    if not known.exists():
        print(f"making {megabytes} MB of documents from the {origin} corpus ...", flush=True)
        shutil.rmtree(root, ignore_errors=True)
        known.write_text(json.dumps(_write(root, origin, original_lines(origin), megabytes)))
    return Corpus(root=str(root), **json.loads(known.read_text()))


def original_lines(origin: str) -> list[bytes]:
    """Return the documents of an origin, each once, as JSON lines."""
    return _shared_lines() if origin == "shared" else _collected_lines(BUILD / "collected")


def _shared_lines() -> list[bytes]:
    return _lines(sorted((shared_folder() / "corpus" / "documents").glob("*.gz")))


def _collected_lines(folder: Path) -> list[bytes]:
    """Collect and convert as the demo does."""
    import dolma_dask as dk
    from dolma_dask.testing.corpus import collect_corpus

    dataset = str(folder / "v0")
    for item in collect_corpus(folder).sets:
        mapping = item.mapping
        dk.convert(
            str(folder / "raw" / item.kind),
            to=dataset,
            under=item.kind,
            id=mapping.id,
            text=mapping.text,
            source=mapping.source_name,
            progress=False,
        )
    return _lines(sorted(Path(dataset, "documents").rglob("*.gz")))


def _lines(paths: Iterable[Path]) -> list[bytes]:
    return [line for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def _copies(lines: list[bytes]) -> Iterator[dict[str, object]]:
    """Yield the documents again and again, each time with other ids."""
    documents = [json.loads(line) for line in lines]
    for copy in itertools.count():
        for document in documents:
            yield {**document, "id": f"{document['id']}-{copy}"}


def _write(root: Path, origin: str, lines: list[bytes], megabytes: int) -> dict[str, object]:
    documents = _copies(lines)
    counts = [_write_file(root, index, documents, megabytes / FILES) for index in range(FILES)]
    _write_lines(root / "warm/documents/part-0.jsonl.gz", lines[:WARM_DOCUMENTS])
    for path in sorted((root / "all/documents").iterdir())[:2]:
        (root / "few/documents").mkdir(parents=True, exist_ok=True)
        os.link(path, root / "few/documents" / path.name)
    number, text, json_mb = (sum(column) for column in zip(*counts, strict=True))
    few = [sum(column) for column in zip(*counts[:2], strict=True)]
    corpus = Corpus(origin, str(root), int(number), text, json_mb, int(few[0]), few[1])
    return {name: value for name, value in asdict(corpus).items() if name != "root"}


def _write_file(
    root: Path, index: int, documents: Iterator[dict[str, object]], megabytes: float
) -> tuple[int, float, float]:
    """Write one file of ``all`` and of ``raw``; return documents, MB of text and MB of JSON."""
    plain, raw, text = [], [], 0.0
    while text < megabytes:
        document = next(documents)
        plain.append(json.dumps(document, ensure_ascii=False).encode())
        raw.append(json.dumps(_as_record(document), ensure_ascii=False).encode())
        text += len(str(document["text"]).encode()) / 1e6
    name = f"part-{index}.jsonl.gz"
    _write_lines(root / "all/documents" / name, plain)
    _write_lines(root / "raw" / name, raw)
    return len(plain), text, sum(len(line) + 1 for line in plain) / 1e6


def _as_record(document: dict[str, object]) -> dict[str, object]:
    """Return a document under the names of somebody else's format."""
    return {
        "doc_id": document["id"],
        "timestamp": document.get("created"),
        "content": document["text"],
        "meta": {"set": document["source"], "kept": document.get("metadata")},
        "lang": "en",
        "score": 0.5,
    }


def _write_lines(path: Path, lines: list[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines), 6, mtime=0))
