"""Documents with their attributes: an attribute file lines up row by row with its document file, or reading fails.

Begin with `AlignedShard` in `reader`: columns of a shard that are read side by side. `columns` finds columns by name, `catalog` the attribute
files of a dataset and what the journal says of them, `clusters` the members of clusters of near duplicates, `follower` compares one attribute file with its documents: ids and sources row by row, and
the digests in its record with those of the documents read now. A file that differs from its record is stale; one without a record passes on
the rows alone and is called unproved.
"""
