"""Lists of domains and addresses: without files of the user's no document is in one; `tests/property/test_url_lists.py` has some."""

from dolma_dask.taggers.urls import TAGGERS

ORACLES = {tagger.name: lambda text, metadata: {"url": None} for tagger in TAGGERS}
