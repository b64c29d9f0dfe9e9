"""Writers: context managers that take rows and leave a complete file or none. Begin with `base.FileWriter`.

Rows are JSON lines (`jsonl`) or a table (`base.TableFile`); `documents` and `attributes` decide between them by the suffix. `ragged` and `hdf5` write token
shards, which need their length first and are staged in a temporary file; `token_files` has the formats of other trainers.
"""
