"""Taggers of where documents come from: whether ``metadata.url`` is in a published list, of which the user gives the files. Source: ``url.py`` of the Dolma toolkit, release 1.2.1.

Lists lie in folders of their own below that of ``artifacts``, as published, plain or in gzip: ``blocklist_hosts_porn/porn.txt``. As in the toolkit a list of domains has a host that is listed, with
``www.`` or without, and nothing else that lies in the domain; one of Adblock Plus (``_abp``) what its rules say. A document in the list has 1, another has no value.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats.metadata import scan_metadata
from dolma_dask.taggers.base import NUMBERS_BY_NAME, Open, Part, Scorer, ViewTagger
from dolma_dask.taggers.labels import check_names
from dolma_dask.taggers.url_lists import (
    Lines,
    UrlList,
    adblock_list,
    address_list,
    any_list,
    domain_list,
    joined,
    places_of,
    read_all,
    wikidata_list,
)
from dolma_dask.text.view import TextView

_URL = "metadata.url"
OWN_LISTS = "url_lists"
"""Folder of the user's own lists."""


def _urls(metadata: pa.LargeStringArray) -> pa.LargeStringArray:
    return scan_metadata(metadata, {_URL: "string"})[0][_URL]


def _marks(listed: UrlList, view: TextView, metadata: pa.LargeStringArray) -> Sequence[pa.Array]:
    found = listed.find(places_of(_urls(metadata)))
    return [pa.array(np.ones(len(view)), mask=~found)]


def _no_list(view: TextView, metadata: pa.LargeStringArray) -> Sequence[pa.Array]:
    return [pa.nulls(len(view), pa.float64())]


def _no_labels(view: TextView, metadata: pa.LargeStringArray) -> Sequence[pa.Array]:
    return [pa.nulls(len(view), NUMBERS_BY_NAME)]


Files = Mapping[str, Lines]
"""Lines of each file of a list."""


def _all(files: Files) -> Lines:
    return pa.concat_arrays(list(files.values()))


def _hosts(files: Files) -> UrlList:
    return domain_list(_all(files), deep=False)


def _addresses(files: Files) -> UrlList:
    return address_list(_all(files))


def _rules(files: Files) -> UrlList:
    return adblock_list(_all(files))


def _wikidata(files: Files) -> UrlList:
    return joined([wikidata_list(lines, name) for name, lines in files.items()])


def _load(read: Callable[[Files], UrlList], files: Mapping[str, Open]) -> Scorer:
    """Return what tells which documents are in the list that the files make together."""
    lines = dict(read_all(files))
    return partial(_marks, _not_empty(" and ".join(files), read(lines)))


def _not_empty(name: str, listed: UrlList) -> UrlList:
    """Refuse (`UsageError`) a list that says nothing."""
    if listed.entries == 0:
        raise UsageError(
            f"{name} says nothing: it has no domain, address or rule that can be used, and {counted(listed.left_out, 'other line')}; expected one a line. Get it anew."
        )
    return listed


def _left_out(scorer: Scorer) -> str:
    """Say how many lines of a list that `_load` has read concern no document, or cannot be read."""
    lines = cast("partial[Sequence[pa.Array]]", scorer).args[0].left_out
    return (
        f"{counted(lines, 'line')} of its lists left out: they say nothing of whole pages, or cannot be read"
        if lines
        else ""
    )


def _labels(
    lists: Mapping[str, UrlList], view: TextView, metadata: pa.LargeStringArray
) -> Sequence[pa.Array]:
    places = places_of(_urls(metadata))
    found = {label: listed.find(places) for label, listed in lists.items()}
    rows = [[(label, 1.0) for label, has in found.items() if has[row]] or None for row in range(len(view))]
    return [pa.array(rows, NUMBERS_BY_NAME)]


def _left_out_of_own(scorer: Scorer) -> str:
    lists = cast("partial[Sequence[pa.Array]]", scorer).args[0]
    told = [f"{listed.left_out:,} of {name}" for name, listed in lists.items() if listed.left_out]
    return (
        f"lines left out that say nothing of whole pages, or cannot be read: {', '.join(told)}"
        if told
        else ""
    )


def _load_own(files: Mapping[str, Open]) -> Scorer:
    lists = {
        name.removeprefix(f"{OWN_LISTS}/").removesuffix(".gz").removesuffix(".txt"): _not_empty(
            name, any_list(lines)
        )
        for name, lines in read_all(files)
    }
    check_names([name.removesuffix(".gz").removesuffix(".txt") for name in files], "lists")
    return partial(_labels, lists)


_SPELLING = (
    "White space around a URL and a dot behind its host do not count, with which the toolkit finds nothing."
)
_WWW = (
    "Of a host only www. itself is taken away, not every w and dot that it begins with; addresses of the own machine in files of hosts are not in the list, and a URL that cannot be read has no value, where the toolkit fails. "
    + _SPELLING
)
_ADDRESSES = (
    "Schemes, queries and slashes at the end do not count, neither in a URL nor in a line of the list; a URL that cannot be read has no value, where the toolkit fails. A space inside stays, the toolkit makes %20 of it. "
    + _SPELLING
)
_ABP = (
    "Rules that are expressions are left out; a URL that cannot be read has no value, where the toolkit fails. A star inside of a host stands for anything, as the format says; "
    "the engine of the toolkit takes what is before it for whole labels of the host, and www. before it for nothing. "
    + _SPELLING
)
_WIKIDATA = (
    "What lies in a listed domain is in the list, where the toolkit compares the last two labels, so that one entry of co.uk lets all of co.uk in. "
    + _SPELLING
)
_READERS = {
    "hosts": (_hosts, _WWW),
    "rules": (_rules, _ABP),
    "addresses": (_addresses, _ADDRESSES),
    "wikidata": (_wikidata, _WIKIDATA),
}

_FIREBOG, _HOSTS = "The Big Blocklist Collection (firebog.net)", "github.com/StevenBlack/hosts"
_PROJECT, _OISD = "The Block List Project (github.com/blocklistproject/Lists)", "oisd.nl"
_PHISHING = "github.com/mitchellkrogza/Phishing.Database"


def _tagger(
    name: str, what: str, source: str, kind: str = "hosts", folder: str = "", description: str = ""
) -> ViewTagger:
    """Return the tagger of a list; its folder is its name without the version."""
    read, differs = _READERS[kind]
    files = f"{folder or name.removesuffix('_v1')}/*"
    return ViewTagger.of(
        name,
        description or f"1 for documents of {what}.",
        Part(_no_list, {"url": "document"}),
        reads=("text", "metadata"),
        files=(files,),
        load=partial(_load, read),
        note=_left_out,
        source=f"Published by {source}; its files may have any names, as {files}",
        differs=differs,
    )


TAGGERS = (
    _tagger("allowlist_wikidata_v1", "sites and periodicals that Wikidata knows", "query.wikidata.org, answers in JSON with an url (of Q35127, Q1002697)", "wikidata"),
    _tagger("allowlist_wikidata_cleaned_v1", "sites and periodicals that Wikidata knows; as in the toolkit, nothing is cleaned out", "query.wikidata.org, answers in JSON with an url (of Q35127, Q1002697)", "wikidata", "allowlist_wikidata"),
    _tagger("blocklist_firebog_ads_v1", "hosts of advertisements", f"{_FIREBOG}, advertising"),
    _tagger("blocklist_firebog_crypto_v1", "hosts that mine coins in browsers", f"{_FIREBOG}, cryptomining"),
    _tagger("blocklist_firebog_malicious_v1", "malicious hosts", f"{_FIREBOG}, malicious"),
    _tagger("blocklist_firebog_nsfw_v1", "hosts of pornography", f"{_FIREBOG}, other lists"),
    _tagger("blocklist_firebog_social_v1", "hosts of social networks", f"{_FIREBOG}, other lists"),
    _tagger("blocklist_firebog_suspicious_v1", "suspicious hosts", f"{_FIREBOG}, suspicious"),
    _tagger("blocklist_firebog_trackers_v1", "hosts that track their visitors", f"{_FIREBOG}, tracking and telemetry"),
    _tagger("blocklist_hosts_adware_malware_v1", "hosts of adware and malware", _HOSTS),
    _tagger("blocklist_hosts_fakenews_v1", "hosts of fake news", f"{_HOSTS}, fakenews"),
    _tagger("blocklist_hosts_gambling_v1", "hosts of gambling", f"{_HOSTS}, gambling"),
    _tagger("blocklist_hosts_porn_v1", "hosts of pornography", f"{_HOSTS}, porn"),
    _tagger("blocklist_hosts_social_v1", "hosts of social networks", f"{_HOSTS}, social"),
    _tagger("blocklist_project_ads_v1", "hosts of advertisements and tracking", f"{_PROJECT}: adobe, ads, basic, smart-tv, tracking"),
    _tagger("blocklist_project_crime_v1", "hosts of abuse, fraud, malware, phishing, piracy, ransomware and scams", f"{_PROJECT}: abuse, fraud, malware, phishing, piracy, ransomware, redirect, scam"),
    _tagger("blocklist_project_nsfw_v1", "hosts of pornography", f"{_PROJECT}: porn"),
    _tagger("blocklist_project_social_v1", "hosts of social networks and games", f"{_PROJECT}: facebook, fortnite, tiktok, twitter, whatsapp, youtube"),
    _tagger("blocklist_project_vice_v1", "hosts of coins, drugs, gambling and vaping", f"{_PROJECT}: crypto, drugs, gambling, vaping"),
    _tagger("brave_core_abp_v1", "pages that the rules of Brave block", "github.com/brave/adblock-lists, first party filters", "rules"),
    _tagger("brave_nsfw_abp_v1", "pages of pornography, by rules that Brave offers", "github.com/brave/adblock-lists, its list against pornography", "rules"),
    _tagger("domain_blocklist_phishing_v1", "hosts of phishing", _PHISHING, "hosts", "blocklist_phishing"),
    _tagger("domain_blocklist_utp_v1", "hosts of pornography", "the University of Toulouse 1 Capitole (dsi.ut-capitole.fr/blacklists), adult"),
    _tagger("link_blocklist_phishing_v1", "pages of phishing, by their addresses", _PHISHING, "addresses", "blocklist_phishing"),
    _tagger("oisd_big_abp_v1", "pages that the large list of oisd blocks", f"{_OISD}, big, for Adblock Plus", "rules"),
    _tagger("oisd_nsfw_abp_v1", "pages of pornography, by the list of oisd", f"{_OISD}, nsfw, for Adblock Plus", "rules"),
    _tagger("oisd_small_abp_v1", "pages that the small list of oisd blocks", f"{_OISD}, small, for Adblock Plus", "rules"),
    ViewTagger.of(
        "url_list_v1",
        "1 for documents whose metadata.url is in a list of yours, under its name: domains with all that lies in them, addresses with a path, or rules of Adblock Plus.",
        Part(_no_labels, {"url": "labels"}),
        reads=("text", "metadata"),
        files=(f"{OWN_LISTS}/*.txt", f"{OWN_LISTS}/*.txt.gz"),
        load=_load_own,
        note=_left_out_of_own,
        source=f"lists of yours, as {OWN_LISTS}/mine.txt",
    ),
)  # fmt: skip
