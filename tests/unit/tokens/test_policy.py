"""Beginning and end tokens stand around every document, and nothing else changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.ragged import SpecialToken
from dolma_dask.tokens.engine import TokenEngine, Tokens, load_tokenizer
from dolma_dask.tokens.specials import Framing, SpecialTokens

BOS, EOS = SpecialToken("<s>", 901), SpecialToken("</s>", 902)


@pytest.fixture(scope="module")
def engine() -> TokenEngine:
    tokenizer = Tokenizer(models.WordLevel({"one": 0, "two": 1, "far": 90}))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return load_tokenizer(tokenizer.to_str())


@settings(deadline=None)  # the kernel compiles in the first example
@given(
    documents=st.lists(st.lists(st.integers(0, 900), max_size=6), max_size=8),
    bos=st.sampled_from([None, BOS]),
    eos=st.sampled_from([None, EOS]),
)
def test_framing_equals_a_loop_over_documents(
    documents: list[list[int]], bos: SpecialToken | None, eos: SpecialToken | None
) -> None:
    flat = np.array([token for document in documents for token in document], np.int16)
    framed = Framing(bos, eos).apply(Tokens(flat, np.array([len(item) for item in documents], np.int32)))
    expected = [([bos.id] if bos else []) + document + ([eos.id] if eos else []) for document in documents]
    assert framed.ids.tolist() == [token for document in expected for token in document]
    assert framed.lengths.tolist() == [len(document) for document in expected]
    assert (framed.ids.dtype, framed.lengths.dtype) == (np.int16, np.int32)


def test_default_adds_nothing(engine: TokenEngine) -> None:
    tokens = Tokens(np.array([1, 0], np.int16), np.array([2, 0], np.int32))
    assert SpecialTokens().resolve(engine).apply(tokens) is tokens


def test_names_and_ids_resolve_to_the_same(engine: TokenEngine) -> None:
    bos = engine.token_id("<s>")
    assert bos is not None
    by_name = SpecialTokens(bos="<s>", eos="one").resolve(engine)
    assert by_name == SpecialTokens(bos=bos, eos=0).resolve(engine)
    assert by_name == Framing(SpecialToken("<s>", bos), SpecialToken("one", 0))


@pytest.mark.parametrize("wanted", [-1, 5, 10_000, True])
def test_an_id_without_a_name_is_refused(engine: TokenEngine, wanted: int) -> None:
    with pytest.raises(UsageError, match=r"bos=.* expected an id from 0 to"):
        SpecialTokens(bos=wanted).resolve(engine)


def test_an_unknown_name_offers_near_ones(engine: TokenEngine) -> None:
    with pytest.raises(UsageError, match=r"eos='</S>' is not in the vocabulary .*did you mean one of '</s>'"):
        SpecialTokens(eos="</S>").resolve(engine)


def test_a_length_beyond_int32_is_an_error() -> None:
    class Huge:
        """Stands for a document of 2^31-1 ids, which nobody wants to allocate."""

        ids = np.empty(0, np.int16)
        lengths = np.array([3, 2**31 - 1], np.int32)

    with pytest.raises(DataError, match=r"document 1 .* has 2147483648 tokens"):
        Framing(BOS).apply(Huge())  # type: ignore[arg-type]


def test_record_names_the_tokenizer(engine: TokenEngine) -> None:
    record = SpecialTokens(eos="</s>").resolve(engine).record(engine)
    assert (record.fingerprint, record.vocab_size) == (engine.fingerprint, engine.vocab_size)
    assert record.bos is None
    assert record.eos == SpecialToken("</s>", engine.token_id("</s>") or -1)
