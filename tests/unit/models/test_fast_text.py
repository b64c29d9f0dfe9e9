"""A classifier of the user's is opened once, from anywhere, and only if it is whole."""

import io
from functools import partial

import pytest
from trained import write_fast_text

from dolma_dask.errors import CorruptFileError
from dolma_dask.models.fast_text import check_fast_text, open_fast_text

fasttext = pytest.importorskip("fasttext", reason="the package of the extra models is not installed")


@pytest.fixture(scope="module", params=["bin", "ftz"])
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / f"m.{request.param}"
    write_fast_text(path, ("en", "de"), quantized=request.param == "ftz")
    return path


def test_it_answers_as_the_package(model):
    found = open_fast_text("m", partial(open, model, "rb")).predict("the of and")
    labels, scores = fasttext.load_model(str(model)).predict("the of and", k=-1)
    assert found == [
        (label.removeprefix("__label__"), score) for label, score in zip(labels, scores, strict=True)
    ]
    assert found[0][0] == "en"


def test_equal_bytes_are_opened_once_wherever_they_are(model, tmp_path):
    (tmp_path / "copy").write_bytes(model.read_bytes())
    opened = open_fast_text("m", partial(open, model, "rb", buffering=0))
    assert open_fast_text("n", partial(open, tmp_path / "copy", "rb")) is opened
    assert open_fast_text("remote", partial(io.BytesIO, model.read_bytes())) is opened


def test_a_part_of_a_model_is_refused(model, tmp_path):
    whole, part = model.read_bytes(), tmp_path / "part"
    for size in {0, 1, 8, 100, *range(200, len(whole), 1999), len(whole) - 1}:
        part.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"too few|ends within|header tells"):
            check_fast_text(str(part))
    part.write_bytes(whole + b"\0")
    with pytest.raises(
        CorruptFileError, match=r"^fasttext/x\.bin cannot be opened .* header tells .*copy the file again"
    ):
        open_fast_text("fasttext/x.bin", partial(open, part, "rb"))


def test_what_is_no_classifier_is_refused(tmp_path):
    foreign = tmp_path / "m.bin"
    foreign.write_bytes(b"a text that is long enough" * 20)
    with pytest.raises(CorruptFileError, match="does not begin as a model of fastText"):
        open_fast_text("m.bin", partial(open, foreign, "rb"))
    write_fast_text(foreign, ("en", "de"), has_labels=False)
    with pytest.raises(CorruptFileError, match="word vectors, not of labels"):
        open_fast_text("m.bin", partial(open, foreign, "rb"))


@pytest.mark.parametrize("value", [-1, 0, 1, 7, 2**31 - 1])
@pytest.mark.parametrize("place", {"dim": 8, "bucket": 40, "entries": 64, "words": 68, "labels": 72}.items())
def test_a_header_that_contradicts_the_model_is_refused(tmp_path, place, value):
    path = tmp_path / "m.bin"
    write_fast_text(path, ("en", "de"))
    data = bytearray(path.read_bytes())
    before = bytes(data)
    data[place[1] : place[1] + 4] = value.to_bytes(4, "little", signed=True)
    path.write_bytes(data)
    if data == before:
        check_fast_text(str(path))
        return
    with pytest.raises(ValueError, match=r"contradicts itself|too few|header tells"):
        check_fast_text(str(path))
