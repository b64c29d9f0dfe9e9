"""Files behind URLs, local or of a store: begin with `files`, which lists, opens and removes them.

`stored`, `decompress` and `stream` turn stored bytes into blocks of lines; `documents` and `attributes` (with `parquet` for tables)
turn these into columns, and `id_lists` reads lists of ids. `publish` writes files that appear whole or not at all, `late` waits for those of other machines, `quarantine`
keeps bad records, `records` holds what is remembered of files, and `stores` explains and outwaits the failures of a store.
"""
