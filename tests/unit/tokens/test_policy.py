"""Beginning and end tokens of ragged shards, by name or by id."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.ragged import SpecialToken
from dolma_dask.tokens.engine import TokenEngine, load_tokenizer
from dolma_dask.tokens.specials import Framing


@pytest.fixture(scope="module")
def engine() -> TokenEngine:
    tokenizer = Tokenizer(models.WordLevel({"one": 0, "two": 1, "far": 90}))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return load_tokenizer(tokenizer.to_str())


def test_names_and_ids_resolve_to_the_same(engine: TokenEngine) -> None:
    bos = engine.token_id("<s>")
    assert bos is not None
    by_name = Framing.of(engine, bos="<s>", eos="one")
    assert by_name == Framing.of(engine, bos=bos, eos=0)
    assert by_name == Framing(SpecialToken("<s>", bos), SpecialToken("one", 0))


def test_none_is_no_token_also_where_the_vocabulary_has_that_word() -> None:
    engine = load_tokenizer(Tokenizer(models.WordLevel({"none": 0, "</s>": 1})).to_str())
    assert Framing.of(engine, bos="none", eos="none", has_end=True) == Framing()


@pytest.mark.parametrize("wanted", [-1, 5, 10_000, True])
def test_an_id_without_a_name_is_refused(engine: TokenEngine, wanted: int) -> None:
    with pytest.raises(UsageError, match=r"bos=.* expected an id from 0 to"):
        Framing.of(engine, bos=wanted)


def test_an_unknown_name_offers_near_ones(engine: TokenEngine) -> None:
    with pytest.raises(UsageError, match=r"eos='</S>' is not in the vocabulary .*did you mean one of '</s>'"):
        Framing.of(engine, eos="</S>")


def test_digits_are_no_id() -> None:
    vocabulary = {"</s>": 0, "0": 1, "7": 2, "12": 3}
    engine = load_tokenizer(Tokenizer(models.WordLevel(vocabulary)).to_str())
    with pytest.raises(
        UsageError, match=r"eos='0' is the token of that number in texts; .* the id 0 is '</s>'"
    ):
        Framing.of(engine, eos="0")
    assert Framing.of(engine, eos=1).eos == SpecialToken("0", 1), "an id is an id"
    assert Framing.of(engine, eos="12").eos == SpecialToken("12", 3), "there is no such id"


def test_a_length_beyond_int32_is_an_error() -> None:
    class Huge:
        """Stands for a document of 2^31-1 ids, which nobody wants to allocate."""

        ids = np.empty(0, np.int16)
        lengths = np.array([3, 2**31 - 1], np.int32)

    with pytest.raises(DataError, match=r"document 1 .* has 2147483648 tokens"):
        Framing(SpecialToken("<s>", 901)).apply(Huge())  # type: ignore[arg-type]


def test_record_names_the_tokenizer(engine: TokenEngine) -> None:
    record = Framing.of(engine, eos="</s>").record(engine)
    assert (record.fingerprint, record.vocab_size) == (engine.fingerprint, engine.vocab_size)
    assert record.bos is None
    assert record.eos == SpecialToken("</s>", engine.token_id("</s>") or -1)
