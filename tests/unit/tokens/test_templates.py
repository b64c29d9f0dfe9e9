"""Chat templates: what they are given, what they may not do, and special tokens in the texts of dialogues."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dolma_dask.errors import UsageError
from dolma_dask.formats.findings import SPELLED
from dolma_dask.tokens.engine import build, load_tokenizer
from dolma_dask.tokens.records import Unusable
from dolma_dask.tokens.templates import LLAMA, Control, Template, find_template

ROLES = {"user_role": "user", "assistant_role": "assistant"}
CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def byte_level(*special: str) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: at for at, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    return tokenizer


@pytest.fixture
def beside(tmp_path):
    """A function that makes a tokenizer with a config beside it."""

    def make(**config):
        (tmp_path / "tokenizer.json").write_text(byte_level("</s>").to_str())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return load_tokenizer(tmp_path)

    return make


def render(source: str, messages=CHAT, **tokens: str) -> str:
    return Template(source, "test", tuple(tokens.items())).render(messages, **ROLES)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0]['content'] }}{{ messages[1].role }}", "aassistant"),
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{{ {'é': '<&>'} | tojson }}", '{"é": "<&>"}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{% for m in messages %}\n  {% if loop.first %}{% continue %}{% endif %}\n{{ m.content }}{% endfor %}", "b"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "a!"),
        ("{% if tools is none and documents is none and not add_generation_prompt %}none{% endif %}", "none"),
        ("{% if strftime_now is defined %}today{% else %}26 Jul 2024{% endif %}", "26 Jul 2024"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        (CHATML, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"),
    ],
)  # fmt: skip
def test_what_templates_are_given(source, text):
    assert render(source, bos_token="<s>", eos_token="</s>") == text


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (
            "{{ raise_exception('roles must alternate') }}",
            "a dialogue that test refuses: roles must alternate",
        ),
        ("{{ strftime_now('%Y') }}", "today's date would give other tokens every day"),
        ("{{ messages.append(1) }}", "cannot render"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "cannot render"),
        ("{{ 1 / 0 }}", "cannot render: division by zero"),
    ],
)
def test_what_templates_may_not_do(source, what):
    with pytest.raises(Unusable) as error:
        render(source)
    assert what in str(error.value)


def test_no_dialogue_leaves_anything_for_the_next():
    source = (
        "{% if messages | length > 1 %}{% set seen = 'a' %}{% endif %}{{ seen is defined }}"
        "{{ ({'a': messages[0].role} | xmlattr) + '<' }}"
        "{% autoescape messages[0].role == 'x' %}{{ messages[0].content.upper() }}{% endautoescape %}"
    )
    alone, fails = CHAT[:1], [{"role": "x", "content": 1}]
    assert render(source) == 'True a="user"<A'
    assert render(source, alone) == 'False a="user"<A'
    with pytest.raises(Unusable, match="cannot render"):
        render(source, fails)
    assert render(source, alone) == 'False a="user"<A'


def test_no_template_at_all():
    with pytest.raises(UsageError, match=r"chat_template is no Jinja2: line 2: .*endfor"):
        find_template(load_tokenizer(byte_level("</s>").to_str()), "{% for m in messages %}\nx")


def test_the_template_of_a_tokenizer(beside, tmp_path):
    assert find_template(beside()) == LLAMA
    engine = beside(chat_template="{{ bos_token }}!", bos_token={"content": "</s>"}, add_bos_token=True)
    assert find_template(engine).render(CHAT) == "</s>!"
    assert find_template(engine, "?{{ bos_token }}").render(CHAT) == "?</s>"
    named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    assert find_template(beside(chat_template=named)).render(CHAT) == "b"
    with pytest.raises(UsageError, match="templates tool_use; expected one called default"):
        find_template(beside(chat_template=named[:1]))
    engine = beside(chat_template="config")
    (tmp_path / "chat_template.jinja").write_text("file")
    assert find_template(engine).render(CHAT) == "file"


def test_a_template_in_a_file(beside, tmp_path):
    engine, file = beside(eos_token="</s>"), tmp_path / "chat.txt"
    file.write_text("?{{ eos_token }}é", encoding="utf-8")
    found = find_template(engine, str(file))
    assert (found.render(CHAT), found.name) == ("?</s>é", "the template in chat.txt")
    assert find_template(engine, "{{ eos_token }}" * 1000).name == "chat_template"


@pytest.mark.parametrize(
    ("given", "content", "message"),
    [
        ("none.jinja", None, "chat_template .*none.jinja: there is no such file; expected Jinja2, such as"),
        ("llama", None, "chat_template: '.*llama' is no template, .*or the path of a file that has it"),
        ("a.jinja", b"llama", "in .*a.jinja there is no template"),
        ("a.jinja", b"{{ '\xff' }}", "a.jinja is not UTF-8"),
        ("a.jinja", b"{% for", "the template in a.jinja is no Jinja2: line 1"),
    ],
)
def test_words_and_files_that_are_no_template(given, content, message, beside, tmp_path):
    if content is not None:
        (tmp_path / given).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        find_template(beside(), str(tmp_path / given))


def test_the_template_of_tokenizers_without_one():
    system, again = {"role": "system", "content": "s"}, {"role": "user", "content": "c"}
    assert LLAMA.render(CHAT, **ROLES) == "[INST] a [/INST] b"
    assert LLAMA.render([system, *CHAT], **ROLES) == "<<SYS>> s <</SYS>> [INST] a [/INST] b"
    assert LLAMA.render([*CHAT, again, CHAT[1]], **ROLES) == "[INST] a [/INST] b [INST] c [/INST] b"
    with pytest.raises(Unusable, match="role user is none of system, human, bot"):
        LLAMA.render(CHAT, user_role="human", assistant_role="bot")


@pytest.fixture(scope="module")
def chatml():
    return load_tokenizer(byte_level("<|im_start|>", "<|im_end|>").to_str())


def encoded(engine, content: str) -> tuple[list[int], list[tuple[str, str]]]:
    control = Control(engine)
    (hidden,) = control.hide([content])
    texts = [Template(CHATML, "test").render([{"role": "user", "content": hidden}])]
    tokens = control.encode(pa.array(texts, pa.large_string()))
    return tokens.ids.tolist(), [(one.kind, one.what) for one in tokens.findings]


def expected(engine, *parts: str) -> list[int]:
    """Ids of parts, in turn with special tokens meant and as text."""
    ids = []
    for at, part in enumerate(parts):
        one = replace(engine, in_text="text" if at % 2 else "encode")
        ids += one.encode(pa.array([part], pa.large_string())).ids.tolist()
    return ids


@pytest.mark.parametrize("in_text", ["encode", "text", "refuse"])
def test_special_tokens_of_a_template_are_meant_and_those_of_texts_as_requested(in_text, chatml):
    engine = replace(chatml, in_text=in_text)
    ids, found = encoded(engine, "plain")
    assert ids == expected(engine, "<|im_start|>user\nplain<|im_end|>\n")
    assert found == []
    ids, found = encoded(engine, "x <|im_end|>\n<|im_start|>é")
    means = in_text == "encode"
    inside = "x <|im_end|>\n<|im_start|>é"
    whole = f"<|im_start|>user\n{inside}<|im_end|>\n"
    assert ids == (
        expected(engine, whole) if means else expected(engine, "<|im_start|>user\n", inside, "<|im_end|>\n")
    )
    assert found == ([] if means else [(SPELLED, "<|im_end|> <|im_start|>")])
    assert build(engine).tokenizer.decode(ids, skip_special_tokens=False) == whole


def test_no_special_tokens_at_all():
    engine = replace(load_tokenizer(byte_level().to_str()), in_text="text")
    assert encoded(engine, "</s>")[1] == []
