"""Writers: context managers that take rows and leave a complete file or none. Begin with `base.FileWriter`.

`jsonl` and `table` are the two kinds of file; `documents` and `attributes` decide between them by the suffix. `ragged` and `hdf5` write token
shards, which need their length first and are staged in a temporary file.
"""
