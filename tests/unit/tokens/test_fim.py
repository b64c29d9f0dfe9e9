"""Fill in the middle against plain Python; draws by row number; padding, special tokens and rows without room."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dolma_dask.errors import UsageError
from dolma_dask.tokens.engine import TokenEngine, load_tokenizer
from dolma_dask.tokens.fim import Cut, Draw, Fim, FimRows, fim_rows, like_modelzoo, seeded

NAMES = ("<eos>", "<pad>", "<pre>", "<mid>", "<suf>", "<bos>")
EOS, PAD, PRE, MID, SUF, BOS = range(len(NAMES))
LENGTH = 24


def make_engine() -> TokenEngine:
    """Bytes, some pairs of letters, and special tokens."""
    pairs = ["ab", "ba", "aa", "bb"]
    names = [*NAMES, *sorted(pre_tokenizers.ByteLevel.alphabet()), *pairs]
    tokenizer = Tokenizer(
        models.BPE({name: number for number, name in enumerate(names)}, [tuple(pair) for pair in pairs])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(NAMES))
    return load_tokenizer(tokenizer.to_str())


ENGINE = make_engine()
TOKENIZER = Tokenizer.from_str(ENGINE.read())


def options(**more: object) -> Fim:
    return Fim(**({"prefix": PRE, "middle": MID, "suffix": SUF, "eos": EOS, "pad": PAD} | more))


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def never(row: int, chars: Sequence[int]) -> list[Cut | None]:
    return [None] * len(chars)


def always(*cut: int, is_spm: bool = False) -> Draw:
    return lambda row, chars: [Cut(*cut, is_spm)] * len(chars)


def made(
    row: list[int], draw: Draw, fim: Fim | None = None, engine: TokenEngine = ENGINE, length: int = LENGTH
) -> FimRows:
    padded = np.array([row + [PAD] * (length - len(row))], np.int32)
    return fim_rows(padded, np.array([len(row)]), 0, engine, fim or options(), draw)


def plain_pieces(row: list[int]) -> list[list[int]]:
    """Split one token at a time; a piece of nothing counts only at the end."""
    pieces: list[list[int]] = [[]]
    for token in row:
        if token == EOS:
            pieces += [[]]
        else:
            pieces[-1].append(token)
    return [piece for piece in pieces[:-1] if piece] + pieces[-1:]


def plain_row(row: list[int], cuts: list[Cut | None], length: int, bos: list[int]) -> list[list[int]] | None:
    """Make one row by the rule; None if special tokens alone are too many."""
    sections = []
    for piece, cut in zip(plain_pieces(row), cuts, strict=True):
        text = TOKENIZER.decode(piece, skip_special_tokens=False)
        parts = [text[cut.second :], text[: cut.first], text[cut.first : cut.second]] if cut else []
        sections.append([encode(part) for part in parts] or [piece[:], [], []])
    framing = [(4 if cut else 1) + len(bos) for cut in cuts]
    excess = sum(framing) + sum(len(part) for parts in sections for part in parts) - 1 - length
    if sum(framing) - 1 > length:
        return None
    pointers = [0] * len(sections)
    while excess > 0:
        for at, parts in enumerate(sections):
            if excess > 0 and pointers[at] < 3:
                section = parts[pointers[at]]
                if section:
                    section.pop(-1 if pointers[at] == 0 else 0)
                    excess -= 1
                else:
                    pointers[at] += 1
    tokens = []
    for (suffix, prefix, middle), cut in zip(sections, cuts, strict=True):
        if cut is None:
            tokens += [*bos, *suffix, EOS]
        elif cut.is_spm:
            tokens += [*bos, PRE, SUF, *suffix, MID, *prefix, *middle, EOS]
        else:
            tokens += [*bos, PRE, *prefix, SUF, *suffix, MID, *middle, EOS]
    missing = max(-excess, 0)
    tokens += [PAD] * missing
    return [tokens[:-1], [1] * (length - missing) + [0] * missing, tokens[1:]]


PIECES = st.lists(st.text("ab é😀", max_size=14), min_size=1, max_size=5)


@given(PIECES, st.booleans(), st.booleans(), st.data())
def test_rows_are_those_of_plain_python(texts, ends, has_bos, data):
    row = [token for text in texts for token in [*encode(text), EOS]][: None if ends else -1]
    row = row[: data.draw(st.integers(1, LENGTH))] or [EOS]
    bos = [BOS] if has_bos else []
    drawn: list[list[Cut | None]] = []

    def draw(number: int, chars: Sequence[int]) -> list[Cut | None]:
        assert number == 0
        places = [
            sorted(data.draw(st.tuples(st.integers(0, count), st.integers(0, count)))) for count in chars
        ]
        drawn.append(
            [Cut(*place, data.draw(st.booleans())) if data.draw(st.booleans()) else None for place in places]
        )
        return drawn[0]

    found = made(row, draw, options(bos=BOS if has_bos else None))
    expected = plain_row(row, drawn[0], LENGTH, bos)
    if expected is None:
        tokens = [*row, EOS]
        lack = LENGTH + 1 - len(tokens)
        padded = tokens + [PAD] * lack
        expected = [padded[:-1], [1] * (LENGTH - lack) + [0] * lack, padded[1:]]
    assert found.rows[0].tolist() == expected
    assert found.rows.dtype == np.int32
    masked = LENGTH - sum(expected[1])
    assert found.pads.tolist() == [max(masked - 1, 0)]


def test_a_piece_is_turned_in_both_ways():
    row = encode("abcdefgh")
    pre, mid, suf = encode("abc"), encode("de"), encode("fgh")
    psm = [PRE, *pre, SUF, *suf, MID, *mid, EOS]
    spm = [PRE, SUF, *suf, MID, *pre, *mid, EOS]
    for is_spm, expected in ((False, psm), (True, spm)):
        found = made(row, always(3, 5, is_spm=is_spm))
        assert found.rows[0, 0, : len(expected)].tolist() == expected
        assert found.rows[0, 1].sum() == len(expected) - 1
        assert found.removed.tolist() == [0]


def test_a_full_row_loses_tokens_in_turn_and_they_are_counted():
    found = made([*encode("c" * 10), EOS, *encode("d" * 13)], always(4, 8))
    text = TOKENIZER.decode(found.rows[0, 0].tolist(), skip_special_tokens=False)
    # in turn: c d c d - d c, where the first piece has no suffix any more, passes its turn, and then gives of its prefix
    assert text == "<pre>ccc<suf><mid>cccc<eos><pre>dddd<suf>dd<mid>dddd"
    assert found.removed.tolist() == [6]
    assert found.rows[0, 2, -1] == EOS
    assert found.rows[0, 1].all()


def test_padding_is_not_text_and_not_trained_on():
    found = made(encode("ab cd"), always(1, 3))
    text = TOKENIZER.decode(found.rows[0, 0].tolist(), skip_special_tokens=False)
    assert text == "<pre>a<suf>cd<mid>b <eos>" + "<pad>" * int(found.pads[0])
    ids, mask, labels = found.rows[0].tolist()
    size = LENGTH - int(found.pads[0])
    assert mask == [1] * (size - 1) + [0] * (LENGTH - size + 1), "the end predicts nothing"
    assert labels[: size - 1] == ids[1:size]
    assert labels[size - 1 :] == [PAD] * (LENGTH - size + 1)


def test_rows_without_room_for_special_tokens_stay():
    row = [token for _ in range(LENGTH // 2) for token in (*encode("c"), EOS)]
    found = made(row, always(0, 1), options(bos=BOS))
    assert found.rows[0].tolist() == [row, [1] * LENGTH, [*row[1:], EOS]]
    assert found.removed.tolist() == [0]


def test_special_tokens_come_back_as_they_were():
    row = [*encode("ab "), PAD, SUF, *encode("c")]
    found = made(row, always(1, 2))
    text = [PRE, *encode("a"), SUF, *encode(" "), PAD, SUF, *encode("c"), MID, *encode("b"), EOS]
    assert found.rows[0, 0, : len(text)].tolist() == text


@pytest.mark.parametrize("in_text", ["text", "refuse"])
def test_names_of_special_tokens_that_are_text_stay_text(in_text):
    """Documents of which names were taken as text have characters in their ids; a cut must not make an end of a document of them."""
    engine = replace(ENGINE, in_text=in_text)
    texts = pa.array(["a<eos>b"], pa.large_string())
    row = replace(ENGINE, in_text="text").encode(texts).ids.tolist()
    assert EOS not in row
    found = made(row, always(0, 1), engine=engine)
    assert found.rows[0, 0].tolist().count(EOS) == 1
    ids = [PRE, SUF, *row[1:], MID, *row[:1], EOS]
    assert found.rows[0, 0, : len(ids)].tolist() == ids


def some_rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    ids = draw.choice([EOS, *encode("abcdefg é")], (count, LENGTH)).astype(np.int32)
    filled = draw.integers(1, LENGTH + 1, count)
    ids[np.arange(LENGTH) >= filled[:, None]] = PAD
    return ids, filled


def test_draws_depend_on_the_seed_and_the_number_of_the_row_alone():
    ids, filled = some_rows(60)
    fim = options(rate=0.7)
    whole = fim_rows(ids, filled, 1000, ENGINE, fim, seeded(fim, 5)).rows
    for first, stop in ((0, 1), (1, 40), (40, 60)):
        part = fim_rows(ids[first:stop], filled[first:stop], 1000 + first, ENGINE, fim, seeded(fim, 5))
        assert np.array_equal(part.rows, whole[first:stop])
    assert not np.array_equal(whole, fim_rows(ids, filled, 1000, ENGINE, fim, seeded(fim, 6)).rows)
    assert not np.array_equal(whole, fim_rows(ids, filled, 1001, ENGINE, fim, seeded(fim, 5)).rows)


def test_seeded_draws_are_these():
    """Rows of before must stay what they were, with any version of NumPy."""
    draw = seeded(options(), 7)
    assert draw(3, [100, 0, 5]) == [Cut(5, 73, True), Cut(0, 0, True), Cut(1, 5, False)]


def test_shares_and_places_are_as_requested():
    fim = options(rate=0.3, spm_rate=0.8)
    cuts = seeded(fim, 0)(0, [4] * 20_000)
    some = [cut for cut in cuts if cut is not None]
    assert abs(len(some) / len(cuts) - 0.3) < 0.02
    assert abs(sum(cut.is_spm for cut in some) / len(some) - 0.8) < 0.02
    assert all(0 <= cut.first <= cut.second <= 4 for cut in some)
    assert {(cut.first, cut.second) for cut in some} == {
        (one, two) for two in range(5) for one in range(two + 1)
    }


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_all_pieces_or_none(rate):
    fim = options(rate=rate)
    for draw in (seeded(fim, 1), like_modelzoo(fim, 1)):
        assert {cut is None for cut in draw(0, [3] * 1000)} == {rate == 0}


def test_draws_of_the_original_are_those_of_the_global_generator():
    fim = options(rate=0.5)
    draw = like_modelzoo(fim, 3)
    found = [draw(row, [9, 20]) for row in range(50)]
    np.random.seed(3)
    for count, cut in ((count, cut) for cuts in found for count, cut in zip([9, 20], cuts, strict=True)):
        if not np.random.binomial(1, 0.5):
            assert cut is None
            continue
        places = sorted(np.random.randint(low=0, high=count + 1, size=2).tolist())
        assert cut == Cut(*places, bool(np.random.binomial(1, 0.5)))


def test_no_rows():
    fim = options()
    found = fim_rows(np.empty((0, 8), np.int32), np.empty(0, np.int64), 0, ENGINE, fim, never)
    assert found.rows.shape == (0, 3, 8)


@pytest.mark.parametrize("name, field", [("fim_rate", "rate"), ("spm_rate", "spm_rate")])
@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_rates_are_shares(name, field, share):
    with pytest.raises(UsageError, match=rf"{name}={share}; expected a share from 0 to 1"):
        options(**{field: share})
