"""Attribute sets without a key: nothing of them would ever be read, so whether they have rows at all is looked at when they are asked for.

Cost: the first block of each file of such a set; none for sets with keys, whose rows are compared when they are read.
"""

from contextlib import closing

from dolma_dask.alignment import AlignedShard, AttributeSets
from dolma_dask.dataset import Dataset
from dolma_dask.io.attributes import AttributeFile


def check_keyless(dataset: Dataset, sets: AttributeSets) -> None:
    """Refuse files without rows beside documents, in sets that have no key in any file.

    Raises
    ------
    AlignmentError
        A row is missing.
    CorruptFileError
        A file cannot be read.
    """
    for name in [name for name, kinds in sets.kinds.items() if not kinds]:
        for shard in dataset.shards:
            (source,) = [source for source in sets.sources(shard, ()) if source.name == name]
            if _is_empty(dataset.url(source.info.path)):
                alone = AlignedShard(dataset.root, shard, sources=(source,), default_source=dataset.source)
                for _ in alone.open():
                    pass  # raises at the first row of the documents


def _is_empty(url: str) -> bool:
    with closing(iter(AttributeFile(url, {}))) as blocks:
        return not any(len(block.ids) for block in blocks)
