"""Comments, copyright notices and shapes of lines of code."""

import json
import re

import regex
from hypothesis import strategies as st


def notice(text):
    found = re.search(r"/\*.*?\*/", text, re.DOTALL)
    result = {"copyright_notice": None, "comment_block": None, "doc": 0.0 if text else -1.0}
    if found:
        if re.search("copyright", found.group(), re.IGNORECASE):
            start, end = found.span()
            result["copyright_notice"] = [{"start": start, "end": end, "score": 1.0}]
            result["doc"] = (end - start + 1) / len(text)
        return result
    block = re.match(r"(?:(?:(?://|#|--)[^\n]*|)(?:\n|\Z))*", text).group()
    lines = block.split("\n")[: -1 if block != text else None]
    if text and lines:
        size = sum(len(line) or 1 for line in lines)
        result["comment_block"] = [{"start": 0, "end": min(size, len(text)), "score": 1.0}]
        result["doc"] = (size + 1) / len(text)
    return result


def shapes(text):
    lines = [len(line) for line in text.splitlines()]
    letters = sum(char.isalpha() for char in text)
    return {
        "max_line_length_doc": float(max(lines, default=0)),
        "avg_line_length_doc": sum(lines) / max(len(lines), 1),
        "alnum_prop_doc": sum(char.isalnum() for char in text) / max(len(text), 1),
        "alpha_token_prop_doc": letters / len(regex.split(r"\w+|[^\w\s]+", text)),
    }


STYLES = {
    "c": (["//"], [("/*", "*/")], "\"'", True),
    "js": (["//"], [("/*", "*/")], "\"'`", False),
    "sh": (["#"], [], "\"'", True),
    "lua": (["--"], [("--[[", "]]")], "\"'", False),
    "json": ([], [], "", False),
}


def comments(text, extension):
    """Walk through the code sign by sign."""
    code = text.replace("\r\n", "\n").replace("\r", "\n")
    signs, blocks, quotes, counts_newline = STYLES[extension]
    at = total = 0
    while at < len(code):
        block = next((pair for pair in blocks if code.startswith(pair[0], at)), None)
        if block:
            end = code.find(block[1], at + len(block[0]))
            size = end + len(block[1]) - at if end >= 0 else 0
            total += size
            at += size or len(block[0])
        elif any(code.startswith(sign, at) for sign in signs):
            end = code.find("\n", at)
            end = len(code) if end < 0 else end + counts_newline
            total += end - at
            at = end
        elif code[at] in quotes:
            at = behind_string(code, at)
        else:
            at += 1
    return total


def behind_string(code, at):
    quote = code[at]
    at += 1
    while at < len(code):
        if code[at] == "\\":
            at += 2
        elif code[at] == quote:
            return at + 1
        elif code[at] == "\n" and quote != "`":
            return at
        else:
            at += 1
    return len(code)


def starcoder(version, name, text, metadata):
    fields = json.loads(metadata)
    extension = fields.get("ext")
    stars = fields.get("max_stars_count")
    known = extension in STYLES
    counted = known if version == 1 else extension == "js"
    share = (
        (comments(text, extension) / len(text) if text else -1.0) if counted else {1: -1.0, 2: 0.5}[version]
    )
    page = 1.0 if version == 2 or (known and text) else -1.0
    return {
        "has_xml_template_doc": float("<?xml version=" in text[:100]),
        "num_github_stars_doc": float(stars) if isinstance(stars, (int, float)) else 0.0,
        name: share,
        "code_to_text_ratio_html_doc": page,
    }


ORACLES = {
    "code_copyright_comments_v1": notice,
    "code_redpajama_taggers_v1": shapes,
    "code_starcoder_taggers_v1": lambda *given: starcoder(1, "nl_ratio_doc", *given),
    "code_starcoder_taggers_v2": lambda *given: starcoder(2, "code_to_comment_ratio_doc", *given),
}
extensions = st.sampled_from([*STYLES, "zzz", None])
METADATA = dict.fromkeys(
    ["code_starcoder_taggers_v1", "code_starcoder_taggers_v2"],
    st.fixed_dictionaries(
        {}, optional={"ext": extensions, "max_stars_count": st.sampled_from([3, 0, None, 2.5])}
    ).map(json.dumps),
)
TEXTS = dict.fromkeys(
    ORACLES,
    st.lists(
        st.sampled_from(
            [
                "/*",
                "*/",
                "//",
                "#",
                "--",
                "--[[",
                "]]",
                "\n",
                "\r\n",
                "\r",
                '"',
                "'",
                "`",
                "\\",
                "a b",
                "é日",
                "Copyright",
                "copyr",
                "\u0131GHT",
                "x" * 70,
                "<?xml version=",
                "\x85",
                "_1",
                "²",
            ]
        ),
        max_size=30,
    ).map("".join),
)
