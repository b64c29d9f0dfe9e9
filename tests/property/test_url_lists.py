"""Hosts are those of urllib; what a list of domains, addresses or rules has is what a walk over its lines finds."""

import gzip
import io
import json
import re
from functools import partial
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thorough import THOROUGH

from dolma_dask.errors import DataError, UsageError
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.taggers.url_lists import adblock_list, address_list, domain_list, lines_of, places_of
from dolma_dask.text.hosts import split_url

MANY = settings(max_examples=17_000 if THOROUGH else 40)
"""Three URLs an example."""

labels = st.sampled_from(
    ["a", "ads", "www", "wwf", "b-c", "x_1", "bücher", "BÜCHER", "xn--bcher-kva", "例え", "co"]
)
hosts = st.tuples(
    st.lists(labels, min_size=1, max_size=3), st.sampled_from(["org", "ORG", "co.uk", "de.", "example"])
).map(lambda parts: ".".join([*parts[0], parts[1]]))
paths = st.sampled_from(["", "/", "/a", "/A/b/", "/banner/x.gif", "?q=a.org", "#b.org/a", "/a@b:1", "/ads?x"])
urls = st.builds(
    lambda *parts: "".join(parts),
    st.sampled_from(["http://", "HTTPS://", "//", "ftp://", ""]),
    st.sampled_from(["", "", "user:pw@", "a.org@"]),
    hosts | st.sampled_from(["[::1]", "[2001:DB8:0::1]", "10.0.0.1"]),
    st.sampled_from(["", "", ":80", ":"]),
    paths,
)


def host_by_urllib(url):
    parts = urlsplit(url if re.match("(?:[a-z]+:)?//", url, re.IGNORECASE) else f"//{url}")
    if "@" in parts.netloc and not parts.scheme and not url.startswith("//"):
        return ""
    host = (parts.hostname or "").removesuffix(".")
    if ":" in host:
        return host.replace("2001:db8:0::1", "2001:db8::1")
    return host.encode("idna").decode()


@given(urls)
@example("http://a.org:8o/")
def test_hosts_are_those_of_urllib(url):
    if url.endswith(":8o/"):
        assert split_url(url) == ("", "")
    else:
        assert split_url(url)[0] == host_by_urllib(url)


@given(st.text(max_size=40) | st.text(st.sampled_from("a.:/@[]#?\\ é%"), max_size=12))
def test_any_text_has_a_host_or_none(text):
    host, address = split_url(text)
    assert re.fullmatch(r"[a-z0-9_.:-]*", host)
    assert address.startswith(host)


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "http://",
        "mailto:a@b.example",
        "javascript:void(0)",
        "http://a b.example/",
        "http://..",
        "a..b",
        "http://[::g]/",
        "é" * 300,
    ],
)
def test_what_is_no_url_has_no_host(url):
    assert split_url(url) == ("", "")


def found(listed, given):
    return listed.find(places_of(pa.array(given, pa.large_string()))).tolist()


def column(lines):
    return lines_of("\n".join(lines).encode())


def plain(host):
    return host_by_urllib(host.lower()).removeprefix("www.")


entries = st.lists(
    st.tuples(
        hosts,
        st.sampled_from(["{}", "0.0.0.0 {}", "127.0.0.1\t{} # why", "||{}^", "http://{}/x?y", "www.{}"]),
    ),
    max_size=6,
)


@MANY
@given(listed=entries, given_urls=st.lists(urls, max_size=6), deep=st.booleans())
def test_a_list_of_domains_has_its_lines(listed, given_urls, deep):
    lines = ["# comment", "", "127.0.0.1 localhost", *(form.format(host).lower() for host, form in listed)]
    known = {plain("www." * form.startswith("www.") + host) for host, form in listed}
    expected = []
    for url in given_urls:
        host = host_by_urllib(url).removeprefix("www.")
        expected.append(any(host == one or (deep and host.endswith(f".{one}")) for one in known))
    assert found(domain_list(column(lines), deep=deep), given_urls) == expected


@MANY
@given(listed=st.lists(st.tuples(hosts, paths), max_size=4), given_urls=st.lists(urls, max_size=6))
def test_a_list_of_addresses_has_its_lines(listed, given_urls):
    def address(url):
        parts = urlsplit(re.sub("^(?:[a-z]+:)?//|^", "//", url.lower(), count=1))
        port = re.search(r":\d+$", parts.netloc)
        return host_by_urllib(
            url
        ) and f"{host_by_urllib(url)}{port.group() if port else ''}{parts.path}".rstrip("/")

    lines = [f"{host}{path}".lower() for host, path in listed]
    known = {address(line) for line in lines} - {""}
    assert found(address_list(column(lines)), given_urls) == [address(url) in known for url in given_urls]


def as_expression(rule):
    # between slashes a pattern is an expression, here one without signs
    rule = rule.strip("/") if rule[0] == rule[-1] == "/" else rule
    inner = re.escape(rule.strip("|")).replace(r"\*", ".*").replace(r"\^", r"([^a-z0-9_.%-]|$)")
    start = r"^http://([^/]*\.)?" if rule.startswith("||") else "^" if rule.startswith("|") else ""
    return start + inner + ("$" if rule.endswith("|") else "")


patterns = st.one_of(
    st.sampled_from(
        [
            "banner",
            "/ads/",
            "^a^",
            "*b-*",
            "|http://a",
            "x.gif|",
            "a*gif",
            "||a.org/b",
            "||ad",
            "||*.org^",
            "||ads*^banner",
            "||org^",
        ]
    ),
    st.tuples(
        st.sampled_from(["||{}^", "||{}", "{}/a", "|http://{}|"]),
        st.sampled_from(["a.org", "ads.org", "co.uk", "org", "a.ads.org", "b-c.example"]),
    ).map(lambda pair: pair[0].format(pair[1])),
)
rules = st.tuples(
    st.sampled_from(["", "", "@@"]),
    patterns,
    st.sampled_from(["", "", "$third-party", "$image", "$domain=a.org", "$important"]),
)


@MANY
@given(listed=st.lists(rules, max_size=5), given_urls=st.lists(urls, max_size=6))
def test_a_list_of_rules_is_what_its_expressions_match(listed, given_urls):
    lines = ["! comment", "a.org##.ad", *("".join(rule) for rule in listed)]
    expected = []
    for url in given_urls:
        address = f"http://{split_url(url)[1]}"
        matched = {
            (sign, options == "$important")
            for sign, pattern, options in listed
            if options in ("", "$third-party", "$important")
            and split_url(url)[0]
            and re.search(as_expression(pattern), address)
        }
        let_through = ("@@", False) in matched or ("@@", True) in matched
        expected.append(("", True) in matched or (("", False) in matched and not let_through))
    assert found(adblock_list(column(lines)), given_urls) == expected


def test_lines_that_say_nothing_are_counted():
    lines = ["! comment", "a.org##.ad", "||a.org^$image", "/a[0-9]/", "||b.org^", "b.org", "a"]
    assert adblock_list(column(lines)).left_out == 4
    assert domain_list(column(["a.org", "@@||b.org^", "no host", "# comment"]), deep=True).left_out == 2


def tagged(name, files, *given_urls):
    tagger = get_tagger(name).with_files({path: partial(io.BytesIO, data) for path, data in files.items()})
    metadata = [json.dumps({"url": url}) for url in given_urls]
    columns = [pa.array(["text"] * len(metadata), pa.large_string()), pa.array(metadata, pa.large_string())]
    return tagger(pa.RecordBatch.from_arrays(columns, names=["text", "metadata"])).column("url").to_pylist()


def test_a_tagger_reads_all_files_of_its_list():
    files = {
        "blocklist_hosts_porn/a.txt": b"\xef\xbb\xbfA.example\r\n",
        "blocklist_hosts_porn/b.txt.gz": gzip.compress(b"0.0.0.0 b.example\n", mtime=0),
    }
    given_urls = ("http://a.example/x", "https://www.b.example", "c.a.example", None, 5)
    assert tagged("blocklist_hosts_porn_v1", files, *given_urls) == [1.0, 1.0, None, None, None]
    rules = {"oisd_big_abp/a.txt": b"||a.example^\n", "oisd_big_abp/b.txt": b"@@||b.a.example^\n"}
    assert tagged("oisd_big_abp_v1", rules, "a.example", "b.a.example", "d.c.a.example") == [1.0, None, 1.0]
    links = {"blocklist_phishing/links.txt": b"https://a.example/Login/?u=1\nb.example\n"}
    assert tagged(
        "link_blocklist_phishing_v1", links, "http://a.example/login", "a.example", "b.example/"
    ) == [1.0, None, 1.0]
    known = {"allowlist_wikidata/a.json": b'[{"url": "http://www.wwf.example/home"}, {"url": null}, {}]\n'}
    assert tagged("allowlist_wikidata_v1", known, "sub.wwf.example", "f.example", "example") == [
        1.0,
        None,
        None,
    ]


def test_lists_of_your_own_have_a_label_each():
    files = {
        "url_lists/mine.txt": b"a.example\nb.example/path\n",
        "url_lists/ads.txt.gz": gzip.compress(b"||a.example^\n", mtime=0),
    }
    expected = [[("ads", 1.0), ("mine", 1.0)], [("mine", 1.0)], None]
    assert tagged("url_list_v1", files, "x.a.example", "http://b.example/path/", "b.example") == expected


@pytest.mark.parametrize(
    "name, data",
    [("a.txt", b"\xff"), ("a.txt.gz", b"plain"), ("a.txt.gz", gzip.compress(b"a.example", mtime=0)[:-4])],
)
def test_files_that_are_no_lists_are_named(name, data):
    with pytest.raises(DataError, match=name):
        tagged("blocklist_hosts_porn_v1", {f"blocklist_hosts_porn/{name}": data}, "a.example")
    with pytest.raises(DataError, match=r"a\.json: .*expected a JSON list"):
        tagged("allowlist_wikidata_v1", {"allowlist_wikidata/a.json": b"{}{"}, "a.example")


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"bad com is;\n;;;\n"])
def test_lists_that_say_nothing_are_refused(data):
    with pytest.raises(UsageError, match="says nothing: it has no domain"):
        tagged("url_list_v1", {"url_lists/mine.txt": data}, "a.example")
    with pytest.raises(UsageError, match="says nothing: it has no domain"):
        tagged("blocklist_hosts_porn_v1", {"blocklist_hosts_porn/a.txt": data}, "a.example")


def test_a_wildcard_stands_for_its_domain():
    assert tagged(
        "url_list_v1", {"url_lists/mine.txt": b"*.bad.example\n"}, "x.bad.example", "bad.example", "b.example"
    ) == [
        [("mine", 1.0)],
        [("mine", 1.0)],
        None,
    ]


def test_lists_of_one_name_are_refused():
    files = {"url_lists/my-list.txt": b"a.example", "url_lists/my_list.txt": b"b.example"}
    with pytest.raises(UsageError, match="would both be written as"):
        tagged("url_list_v1", files, "a.example")


@pytest.mark.parametrize(
    "url, has",
    {
        " http://a.org/ ": True,
        "\nhttp://a.org./x\t": True,
        "a.org.": True,
        "http://a.org../": False,
        "http://a .org/": False,
        "http://a.org /": False,
    }.items(),
)
def test_white_space_around_a_url_and_a_dot_behind_its_host_do_not_count(url, has):
    places = places_of(pa.array([url], pa.large_string()))
    for listed in (domain_list(lines_of(b"a.org"), deep=False), adblock_list(lines_of(b"||a.org^"))):
        assert listed.find(places).tolist() == [has]


@pytest.mark.parametrize(
    "rule, host, has",
    [
        ("||ad*le.com^", "ads.example.com", True),
        ("||ad*le.com^", "adle.com", True),
        ("||ad*le.com^", "my-ads.example.com", False),
        ("||www.*.org^", "www.a.org", True),
        ("||www.*.org^", "a.org", False),
        ("||example.*^", "my.example.co.uk", True),
        ("||example.*^", "myexample.co.uk", False),
    ],
)
def test_a_star_inside_of_a_host_stands_for_anything(rule, host, has):
    places = places_of(pa.array([f"http://{host}/"], pa.large_string()))
    assert adblock_list(lines_of(rule.encode())).find(places).tolist() == [has]
