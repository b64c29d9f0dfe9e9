"""show-tokenizer: what a tokenizer is, what stands around documents, and how many bytes of text its tokens hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Fact, Facts, Notes, Part
from dolma_dask.results.table import Column, Table
from dolma_dask.tokens.engine import TokenEngine, build, choose
from dolma_dask.tokens.fast import fast_version
from dolma_dask.tokens.specials import find_specials
from dolma_dask.tokens.templates import LLAMA, find_template

SAMPLES = {
    "English": "The river had risen during the night, and by morning the lower road was gone. Nobody in the village was surprised; it happened every few years.",
    "German": "Der Fluss war über Nacht gestiegen, und am Morgen war die untere Straße verschwunden. Im Dorf wunderte sich niemand, das geschah alle paar Jahre.",
    "Russian": "За ночь река поднялась, и к утру нижней дороги уже не было. В деревне никто не удивился: такое случалось раз в несколько лет.",
    "Arabic": "ارتفع النهر أثناء الليل، وفي الصباح اختفى الطريق السفلي. لم يتفاجأ أحد في القرية، فهذا يحدث كل بضع سنوات.",
    "Chinese": "夜里河水涨了，到早上下面的路已经不见了。村里没有人感到惊讶，这种事每隔几年就会发生一次。",
    "Python": "def total(rows):\n    result = 0\n    for row in rows:\n        if row.price is not None:\n            result += row.price * row.count\n    return result\n",
    "numbers": "2019-03-17 14:05:09,1024,3.14159,-0.5,65536\n2019-03-17 14:05:10,1025,2.71828,0.25,131072\n",
}
"""Texts of about 150 characters to count tokens by."""


@dataclass(frozen=True)
class SampleRow:
    """Tokens of a text."""

    text: str  # its kind
    bytes: int  # in UTF-8
    tokens: int
    bytes_per_token: float


@dataclass(frozen=True)
class SpecialRow:
    """A token that texts are searched for."""

    id: int
    token: str
    is_special: bool  # whether it is a control token; else an added word

    @property
    def shown(self) -> str:
        """The token as it can be read."""
        return f"{len(self.token)} spaces" if self.token.strip(" ") == "" else repr(self.token)[1:-1]

    @property
    def use(self) -> str:
        """What it is for."""
        return "control" if self.is_special else "word"


class TokenizerAnswer(Answer, frozen=True):
    """A tokenizer; prints as facts and tables."""

    name: str
    model: str  # kind of the model: BPE, Unigram, WordPiece, WordLevel
    fingerprint: str
    vocab_size: int  # largest id + 1
    dtype: str  # of the ids in token arrays
    end: str | None  # token that ends a document in rows of `hdf5`; None: it does not say
    padding: str | None
    adds: tuple[str, ...]  # tokens that it puts around a text by itself
    has_chat_template: bool
    engine: str  # what makes the ids
    specials: tuple[SpecialRow, ...]
    samples: tuple[SampleRow, ...]
    notes: tuple[str, ...] = ()

    def parts(self) -> Iterator[Part]:
        """Yield the facts and the tables."""
        yield Facts(
            f"tokenizer {self.name}",
            [
                Fact("model", self.model),
                Fact("vocabulary", self.vocab_size, "integer"),
                Fact("type of ids", self.dtype),
                Fact("end of a document", self.end or "not known: name one with --eos"),
                Fact("padding", self.padding or "as the end"),
                Fact("puts around a text", " ".join(self.adds) or "nothing"),
                Fact("chat template", "yes" if self.has_chat_template else "no"),
                Fact("ids made by", self.engine),
                Fact("fingerprint", self.fingerprint),
            ],
        )
        yield Table.of("special and added tokens", _SPECIALS, self.specials)
        yield Table.of("tokens of short texts", _SAMPLES, self.samples)
        yield Notes(self.notes)


_SPECIALS = (Column("id", "name"), Column("token", "words", "shown"), Column("use", "words"))
_SAMPLES = (
    Column("text", "words"),
    Column("bytes"),
    Column("tokens"),
    Column("bytes per token", "real", lambda row: round(row.bytes_per_token, 2)),
)


@command
def show_tokenizer(
    tokenizer: Annotated[
        str, Opt("A tokenizer.json, a folder that has one, or a model on the hub: EleutherAI/pythia-70m.")
    ],
    /,
) -> TokenizerAnswer:
    """Tell what a tokenizer is: vocabulary, special tokens, what ends documents, bytes per token, and which engine makes its ids.

    Example: dolma-dask show-tokenizer neox.json

    Returns
    -------
    TokenizerAnswer

    Raises
    ------
    UsageError
        The tokenizer cannot be read.
    """
    engine = choose(open_tokenizer(tokenizer), "auto")
    known = build(engine).tokenizer
    end, padding, adds, notes = _around(engine)
    has_template, more = _template(engine)
    added = sorted(known.get_added_tokens_decoder().items())
    return TokenizerAnswer(
        engine.name,
        msgspec.json.decode(engine.read(), type=_File).model.type,
        engine.fingerprint,
        engine.vocab_size,
        str(engine.dtype),
        end,
        padding,
        adds,
        has_template,
        _made_by(engine),
        tuple(SpecialRow(number, token.content, token.special) for number, token in added),
        tuple(_sample(engine, *item) for item in SAMPLES.items()),
        (*engine.notes, *notes, *more),
    )


class _Model(Struct):
    type: str = "BPE"


class _File(Struct):
    model: _Model


def _around(engine: TokenEngine) -> tuple[str | None, str | None, tuple[str, ...], tuple[str, ...]]:
    """Return what ends documents, pads rows, and stands around a text, as `hdf5` takes them; and a note where it would refuse."""
    try:
        specials = find_specials(engine)
    except UsageError as error:
        return None, None, (), (str(error),)
    ids = (*specials.head, *specials.tail)
    end = None if specials.eos_id is None else engine.token(specials.eos_id)
    return (
        end,
        engine.token(specials.pad_id),
        tuple(engine.token(number) or str(number) for number in ids),
        (),
    )


def _template(engine: TokenEngine) -> tuple[bool, tuple[str, ...]]:
    """Tell whether the tokenizer has a template of its own, as `hdf5` takes it; and a note where it would refuse."""
    try:
        return find_template(engine) != LLAMA, ()
    except UsageError as error:
        return True, (str(error),)


def _made_by(engine: TokenEngine) -> str:
    if engine.fast:
        return engine.fast.split(" beside ")[0]
    return "tokenizers" if fast_version() else "tokenizers (the extra fast is not installed)"


def _sample(engine: TokenEngine, kind: str, text: str) -> SampleRow:
    size, tokens = len(text.encode()), len(engine.encode(pa.array([text], pa.large_string())).ids)
    return SampleRow(kind, size, tokens, size / tokens if tokens else float("nan"))
