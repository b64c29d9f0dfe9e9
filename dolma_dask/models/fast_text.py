"""Classifiers of fastText (``.bin``, ``.ftz``). The package reads a damaged file without a word and answers wrongly, or ends the process: files are checked before.

Format of its version 12, from its sources: numbers are little-endian; arguments, then the dictionary, then an input and an output matrix, each either full or quantized.
"""

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dolma_dask.models.opened import Open, model_of_file

_MAGIC, _VERSIONS = 793712314, (11, 12)
_ARGUMENTS = struct.Struct("<12id")
_COUNTS = struct.Struct("<iiiqq")
_LABEL_PREFIX = "__label__"
_SUPERVISED = 3
_CENTROIDS = 256


class FastText:
    """A classifier: labels of a text, and how sure it is of each."""

    def __init__(self, path: str) -> None:
        from fasttext.FastText import _FastText  # `load_model` prints a warning

        check_fast_text(path)
        self._model: Any = _FastText(path)
        self.labels = tuple(label.removeprefix(_LABEL_PREFIX) for label in self._model.get_labels())

    def predict(self, line: str, most: int = -1) -> list[tuple[str, float]]:
        """Return the labels of a text without newlines, without their prefix, best first; `most` of them, or all."""
        labels, scores = self._model.predict(line, k=most)
        return [
            (label.removeprefix(_LABEL_PREFIX), float(score))
            for label, score in zip(labels, scores, strict=True)
        ]


def open_fast_text(name: str, open_file: Open) -> FastText:
    """Open a classifier of the user's.

    Raises `CorruptFileError`: it is none, or damaged.
    """
    return model_of_file("fasttext", name, open_file, FastText)


def check_fast_text(path: str) -> None:
    """Refuse (`ValueError`) a file that is no classifier, or has not the size that its header tells."""
    size = Path(path).stat().st_size
    if size < 8 + _ARGUMENTS.size + _COUNTS.size:
        raise ValueError(f"it has {size} bytes, too few for a model of fastText")
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        magic, version = struct.unpack_from("<ii", data, 0)
        if magic != _MAGIC or version not in _VERSIONS:
            raise ValueError("it does not begin as a model of fastText")
        arguments = _ARGUMENTS.unpack_from(data, 8)
        if arguments[7] != _SUPERVISED:
            raise ValueError("it is a model of word vectors, not of labels")
        try:
            end = _end_of_model(data)
        except (struct.error, ValueError) as error:
            raise ValueError(f"it ends within the model, or contradicts itself ({error})") from error
        if end != size:
            raise ValueError(f"it has {size:,} bytes where its header tells {end:,}")


def _end_of_model(data: mmap.mmap) -> int:
    """Return where a model ends whose parts agree with each other."""
    at = 8
    arguments = _ARGUMENTS.unpack_from(data, at)
    dimensions, buckets = arguments[0], arguments[8]
    at += _ARGUMENTS.size
    entries, words, labels, _, pruned = _COUNTS.unpack_from(data, at)
    _agree("dictionary", entries, words + labels)
    if min(dimensions, buckets, words, labels) < 0 or not labels:
        raise ValueError("its counts are negative, or it has no labels")
    at += _COUNTS.size
    for _ in range(entries):
        found = data.find(b"\0", at)
        if found < 0:
            raise ValueError("a word has no end")
        at = found + 1 + 8 + 1  # its count, and whether it is a label
    at += 8 * max(pruned, 0)
    is_quantized = data[at : at + 1] == b"\1"
    rows, columns, at = _matrix(data, at + 1, is_quantized)
    _agree("rows of words", rows, words + (buckets if pruned < 0 else pruned))
    _agree("numbers of a word", columns, dimensions)
    is_output_quantized = is_quantized and data[at : at + 1] == b"\1"
    rows, columns, at = _matrix(data, at + 1, is_output_quantized)
    _agree("rows of labels", rows, labels)
    _agree("numbers of a label", columns, dimensions)
    return at


def _agree(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{what}: {found:,} where its header tells {expected:,}")


def _matrix(data: mmap.mmap, at: int, is_quantized: bool) -> tuple[int, int, int]:
    """Return rows, columns and the end of a matrix."""
    if not is_quantized:
        rows, columns = struct.unpack_from("<qq", data, at)
        return rows, columns, int(at + 16 + 4 * rows * columns)
    has_norms, rows, columns, codes = struct.unpack_from("<?qqi", data, at)
    at = _end_of_quantizer(data, at + struct.calcsize("<?qqi") + codes)
    return rows, columns, _end_of_quantizer(data, at + rows) if has_norms else at


def _end_of_quantizer(data: mmap.mmap, at: int) -> int:
    sizes: Sequence[int] = struct.unpack_from("<4i", data, at)
    return at + 16 + 4 * sizes[0] * _CENTROIDS
