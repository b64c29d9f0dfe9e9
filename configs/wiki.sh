#!/bin/sh
# From raw files to token arrays, verb by verb. Each line resumes where it was stopped; run the script again at any time.
# Usage: configs/wiki.sh RAW_FOLDER OUTPUT_FOLDER TOKENIZER_JSON
set -eu
raw=$1 out=$2 tokenizer=$3

# Raw JSON lines become documents. Fields can be mapped (--id url --text body); records without an id get one from file and row.
dolma-dask convert "$raw" --to "$out/v0" --source wiki

# Attributes beside the documents: one pass for all taggers. Later taggers can be added; finished ones are not run again.
dolma-dask tag "$out/v0" --taggers gopher_v2 char_length_v1

# Keep what the rule keeps. Names are keys of the attributes; an unambiguous ending is enough.
dolma-dask mix "$out/v0" --to "$out/v1" --where "word_count >= 5 and symbol_to_word_ratio <= 0.1"

# Token ids of all documents of a shard back to back (.data.npy) and tokens per document (.len.npy).
dolma-dask ragged "$out/v1" "$out/tokens" --tokenizer "$tokenizer"

# One page that shows what happened.
dolma-dask report "$out/v1" --to "$out/report.html" --tokens "$out/tokens"
