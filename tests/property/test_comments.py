"""Comments and docstrings of Python are those of its own parser, and what is seen of a page that of the parser of the standard library, where these can read it."""

import ast
import io
import tokenize
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.text.comments import count_comments, page_share, python_prose

STATEMENTS = [
    "x = 1  # why",
    "# a # comment",
    '"""A string."""',
    "'no doc' % x",
    "def f(a=(1, {2: '#'}), *, b: int = 3) -> dict:",
    "class A(B):  # base",
    "async def g():",
    "if x:",
    'r"""raw \\n\n    more\n\n      deep  """',
    "u'it''s'",
    "b'bytes'",
    "f'{x}'",
    "'a\\tb\\x41\\N{BULLET}\\\nc'",
    's = \'# no\' + """# no\n# no"""',
    "def h(): 'short'; pass",
    "f(1,\n  # inside\n  2)",
    "x = {'a':\n 'b'}",
    "pass",
    "",
]


@st.composite
def programs(draw):
    lines, depth, opened = [], 0, False
    for statement in draw(st.lists(st.sampled_from(STATEMENTS), max_size=12)):
        depth = depth + 1 if opened else draw(st.integers(0, depth))
        opened = statement.partition("#")[0].strip().endswith(":")
        lines.append("    " * depth + statement)
    return "\n".join([*lines, "    " * (depth + 1) + "pass" if opened else ""])


KINDS = {"ClassDef": 0, "FunctionDef": 1, "Module": 2}


def prose(code):
    nodes = [node for node in ast.walk(ast.parse(code)) if type(node).__name__ in KINDS]
    nodes.sort(key=lambda node: (KINDS[type(node).__name__], getattr(node, "name", "")))
    documents = filter(None, map(ast.get_docstring, nodes))
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = [token.string.replace("#", "") for token in tokens if token.type == tokenize.COMMENT]
    return ("\n".join(documents) + "\n" + "".join(comments)).strip()


@given(programs())
def test_comments_and_docstrings_are_those_of_the_parser(code):
    try:
        expected = prose(code)
    except (SyntaxError, tokenize.TokenError):
        return
    assert len(python_prose(code)) == len(expected)


def test_code_that_cannot_be_parsed_has_comments_too():
    assert python_prose("def f(:\n  return 'unterminated\n# c\n") == "c"
    assert python_prose('"""Old."""\nprint 1 # c') == "Old.\n c"


class Seen(HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts, self.hidden = [""], 0

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in ("script", "style", "template")
        self.parts.append("")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style", "template")
        self.parts.append("")

    def handle_comment(self, text):
        self.parts.append("")

    handle_decl = handle_pi = handle_comment

    def handle_data(self, text):
        self.parts[-1] += "" if self.hidden else text


PIECES = [
    "<p>",
    "</p>",
    '<div class="a > b">',
    "<a href='x'>",
    "</a>",
    "<br/>",
    "some words ",
    "\n",
    "  ",
    "&amp;",
    "&#65;",
    "<!-- c > d -->",
    "<script>var a = '<b>';</script>",
    "<style>p{}</style>",
    "<!DOCTYPE html>",
    "<template>t</template>",
    "é日本 ",
    "a < b ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_what_is_seen_of_a_page_is_what_the_parser_gives(pieces):
    page = "<html>" + "".join(pieces) + "</html>"
    parser = Seen()
    parser.feed(page)
    parser.close()
    seen = sum(len(part) if part.strip() else min(len(part), 1) for part in parser.parts)
    assert page_share(page) == (seen / len(page) if seen > 100 else 0.0)


def test_markdown_has_the_comments_of_its_examples():
    text = "# Title\n```python\nx = '''# no\n# no'''  # yes\n```\n```sh\nls # a\n```\n```\n# plain\n```\n``` c\n// no\n```js\n// open"
    assert count_comments(text, "md") == len("# yes" + "# a\n")
