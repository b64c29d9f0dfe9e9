"""What datasets and shards are called on a page: no more of a path or URL than is anybody's business."""

from urllib.parse import urlsplit

from dolma_dask.formats import layout


def stem(shard: str) -> str:
    """Return what a shard is known by in every version: its path without suffix and without the number of a part."""
    return layout.stem_of(layout.unit_of(shard))


def last_name(url: str) -> str:
    """Return the last part of a URL or path: what may be shown of a place that is nobody else's business."""
    return url.rstrip("/").rpartition("/")[2]


def public_name(dataset: str) -> str:
    """Return `dataset` without what a reader must not see: folders of an absolute local path, a user name or password in a URL."""
    parts = urlsplit(dataset) if "://" in dataset else None
    if parts is None or parts.scheme == "file":
        path = (dataset if parts is None else parts.path).rstrip("/")
        return path.rpartition("/")[2] if path.startswith("/") else path
    return dataset.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)
