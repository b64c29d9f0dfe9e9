"""Licences that pages link to."""

import json

import regex
from hypothesis import strategies as st

TAIL = r"""(?<version>/[0-9]+\.[0-9]+)?((/[a-zA-Z0-9_]{2})?/((deed|legalcode)\.)?(?<language>[a-zA-Z0-9_]{2}))?"""
IN_TAG = regex.compile(
    r"""<(a|A|meta)\s[\w\p{P}\s=]*(href|HREF|content)=('|"|&quot;)?https*://creativecommons\.org/"""
    rf"""(licenses/(?<kind>by(-nc)?(-nd)?(-sa)?)|(?<kind>publicdomain/(zero|certification|mark))){TAIL}.*?('|"|&quot;).*?>"""
)
ADDRESS = regex.compile(
    r"""https?://creativecommons\.org/licenses/(?<kind>by(-sa|-nd|-nc|-nc-sa|-nc-nd)?|publicdomain)["/ >]"""
)


def licences(pattern, metadata):
    html = json.loads(metadata).get("html")
    found = {}
    for number, match in enumerate(pattern.finditer(html or "")):
        groups = match.groupdict()
        parts = [groups["kind"], (groups.get("version") or "").strip("/"), groups.get("language")]
        found.setdefault("cc_" + "_".join(filter(None, parts)), 0.5 + 0.5 / (number + 1))
    return {"licence": list(found.items()) or None}


PIECES = [
    "<a ",
    "<A ",
    "<meta\n",
    "<a",
    "href=",
    "HREF=",
    "content=",
    "'",
    '"',
    "&quot;",
    "http",
    "://creativecommons.org/",
    "licenses/",
    "publicdomain/zero",
    "by",
    "by-nc-sa",
    "by-sa",
    "/3.0",
    "/1.0/us",
    "/deed.en",
    "/legalcode",
    "/",
    "\n",
    ">",
    " ",
    "<",
    "=",
    "$",
    "é",
    "²",
    "\u200d",
    "\x1c",
    "€",
    'href="http://creativecommons.org/licenses/by-sa/3.0/us/deed.en"',
    "https://creativecommons.org/licenses/by/4.0/",
]
pages = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=30).map(lambda pieces: {"html": "".join(pieces)}),
    st.sampled_from([{}, {"html": None}, {"other": "<a href='http://creativecommons.org/licenses/by/'>"}]),
).map(json.dumps)

ORACLES = {
    "cc_re": lambda text, metadata: licences(IN_TAG, metadata),
    "cc_re_fast": lambda text, metadata: licences(ADDRESS, metadata),
}
METADATA = dict.fromkeys(ORACLES, pages)
