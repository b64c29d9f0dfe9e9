"""People who come from another tool change one word: command lines of its documentation run as they stand.

Each is given as its documentation shows it, with what stands for the script's name replaced, and paths of this test put in.
"""

import gzip
import json
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer

from dolma_dask import cli
from dolma_dask.testing.tokenizer import train_tokenizer

pytestmark = pytest.mark.e2e

TEXTS = [f"Document {number} speaks of {number * 7} things, and of little else. " * 6 for number in range(30)]
HERE = "--scheduler synchronous --no-progress"


def store(path, rows):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def call(line):
    """Run a command line in this process."""
    return cli.main(shlex.split(line))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, with a tokenizer in it."""
    monkeypatch.chdir(tmp_path)
    train_tokenizer(TEXTS, "encoder.json", vocab_size=300)
    tokenizer = Tokenizer.from_file("encoder.json")
    tokenizer.add_special_tokens([AddedToken("<|padding|>", special=True), AddedToken("</s>", special=True)])
    tokenizer.save("encoder.json")
    return tmp_path


SOURCES = [("stack-dedup", "raw"), ("s2", "v2_hard_dedup"), ("common-crawl", "v0")]


@pytest.mark.parametrize("source, version", SOURCES)
def test_api_of_pretrain_data(source, version, place, capsys):
    """``python api.py --source stack-dedup --version raw``: a good outcome, and that of a document without its source."""
    rows = [{"source": source, "id": str(n), "text": text, "added": "x"} for n, text in enumerate(TEXTS)]
    path = f"sources/{source}/{version}/documents/mined_split/2021-49/0000/af_all.json.gz"
    store(path, rows)
    line = f"validate . --source {source} --version {version} {HERE}"
    assert call(line) == 0
    assert "30" in capsys.readouterr().out
    store(path, [*rows[:5], {"id": "5", "text": "no source"}])
    assert call(line) == 1
    shown = capsys.readouterr().out
    assert "af_all.json.gz" in shown
    assert "'source'" in shown


def test_json_to_ragged_of_pre_tokenize(place):
    """C4's files become c4-*.{data,len}.npy, which are read as read_ragged.py reads them."""
    for shard in range(2):
        rows = [{"text": text, "timestamp": "t", "url": "u"} for text in TEXTS[15 * shard : 15 * shard + 15]]
        store(f"c4/en/c4-validation.{shard:05d}-of-00002.json.gz", rows)
    assert call(f"convert c4/en --to c4/v0 --mapping c4 {HERE}") == 0
    assert call(f'ragged c4/v0 c4-t5-ragged --tokenizer encoder.json --eos "</s>" {HERE}') == 0
    data = np.load("c4-t5-ragged/c4-validation.00001-of-00002.data.npy", mmap_mode="r")
    lengths = np.load("c4-t5-ragged/c4-validation.00001-of-00002.len.npy")
    ends = lengths.cumsum()
    starts = np.concatenate([[0], ends[:-1]])
    tokenizer = Tokenizer.from_file("encoder.json")
    decoded = [tokenizer.decode(data[a : b - 1].tolist()) for a, b in zip(starts, ends, strict=True)]
    assert decoded == TEXTS[15:]


def test_quality_levels_of_lumi(place):
    """The chain's exact dedup and its four levels of p-quantiles, per language."""
    rows = [
        {"raw_content": text, "language": "de" if n % 2 else "fr", "perplexity": 10.0 * n}
        for n, text in enumerate([*TEXTS, *TEXTS[:3]])
    ]
    store("2023-06/combined/de_document.jsonl.gz", rows)
    assert call(f"convert 2023-06/combined --to v0 --mapping redpajama_v2 {HERE}") == 0
    assert call(f"dedupe v0 --how exact --by text {HERE}") == 0
    for level in ("regular", "strict", "even_stricter", "strictest"):
        line = f"quantiles v0 --signals metadata.perplexity --by metadata.language --level {level} {HERE}"
        assert call(line) == 0
        assert Path(f"v0/quantiles/quantiles.{level}.json").exists()
    assert call(f'mix v0 --to v1 --where "exact is None and metadata.perplexity <= 250" {HERE}') == 0
    (kept,) = Path("v1/documents").rglob("*.jsonl.gz")
    assert gzip.decompress(kept.read_bytes()).count(b"\n") == 26


MIXER = """\
streams:
  - name: getting-started
    documents:
      - wikipedia/v0/documents/*.gz
    output:
      path: wikipedia/example0/documents
      max_size_in_bytes: 1000000
    attributes:
      - exp
    filter:
      include:
        - "$.attributes[?(@.exp__char_length_v1__length[0][2] < 100000)]"
      exclude:
        - "$.attributes[?(@.exp__whitespace_tokenizer_v1__length[0][2] < 20)]"
    span_replacement: []
processes: 1
"""


def test_mixer_of_the_dolma_toolkit(place):
    """``dolma -c wikipedia-mixer.yaml mix``, with the toolkit's own file; options of the command line count more."""
    rows = [{"id": str(n), "text": text if n % 3 else "short", "source": "w"} for n, text in enumerate(TEXTS)]
    store("wikipedia/v0/documents/wiki-0000.jsonl.gz", rows)
    line = f"tag wikipedia/v0 --experiment exp --taggers char_length_v1 whitespace_tokenizer_v1 {HERE}"
    assert call(line) == 0
    Path("wikipedia-mixer.yaml").write_text(MIXER)
    assert call(f"-c wikipedia-mixer.yaml mix --dryrun {HERE}") == 0
    assert not Path("wikipedia/example0").exists()
    assert call(f"-c wikipedia-mixer.yaml mix --processes 1 {HERE}") == 0
    (written,) = Path("wikipedia/example0/documents").glob("*.jsonl.gz")
    kept = [json.loads(line)["id"] for line in gzip.decompress(written.read_bytes()).splitlines()]
    assert sorted(kept, key=int) == [str(n) for n in range(30) if n % 3]


def test_create_hdf5_dataset_with_options(place):
    """The README's first example, word for word but for its paths."""
    store("data/a.jsonl", [{"text": text, "meta": {"info": "x"}} for text in TEXTS])
    line = (
        "hdf5 LMData --input_dir data --tokenizer_type NeoXTokenizer --encoder_file encoder.json --max_seq_length 4096 "
        "--use_ftfy True --pack_sequences False"
    )
    assert call(f"{line} --eos_id 0 --pad_id 0 --scheduler synchronous") == 0
    files = sorted(Path("data_dir").glob("*.h5"))
    assert files
    with h5py.File(files[0]) as file:
        assert file["data"].shape[1:] == (3, 4096)
    assert Path("data_dir/data_params.json").exists()


def test_create_hdf5_dataset_with_a_file_of_parameters(place):
    """The README's second example: options in YAML, of which words of the command line count more."""
    store("data/a.jsonl", [{"idea": text} for text in TEXTS])
    Path("configs").mkdir()
    Path("configs/autoregressive_lm_preprocessing.yaml").write_text(
        "setup:\n    input_dir: ./data\n    output_dir: ./h5\n    processes: 1\n"
        "processing:\n    tokenizer_type: NeoXTokenizer\n    encoder_file: encoder.json\n    eos_id: 0\n    pad_id: 0\n"
        "    max_seq_length: 64\n    resume_from_checkpoint: False\n    seed: 0\n"
        "dataset:\n    use_ftfy: True\n    ftfy_normalizer: 'NFC'\n    jsonl_key: idea\n    pack_sequences: True\n"
    )
    line = "hdf5 LMData --params ./configs/autoregressive_lm_preprocessing.yaml --scheduler synchronous"
    assert call(f"{line} --max_seq_length 128") == 0
    with h5py.File(min(Path("h5").glob("*.h5"))) as file:
        assert file["data"].shape[1:] == (3, 128)


def test_create_hdf5_dataset_gives_the_rows_of_hdf5(place):
    """Truth values with words behind them and options in YAML are those of the verb; the command line counts more."""
    store("raw/a.jsonl", [{"text": text} for text in TEXTS])
    Path("params.yaml").write_text(
        "setup:\n  input_dir: raw\n  processes: 1\n"
        "processing:\n  tokenizer_type: NeoXTokenizer\n  encoder_file: encoder.json\n  max_seq_length: 99\n"
        "dataset:\n  use_ftfy: True\n"
    )
    options = "--params params.yaml --max_seq_length 64 --use_ftfy False --pack_sequences True"
    assert call(f"hdf5 LMData {options} --eos_id 0 --scheduler synchronous") == 0
    assert call(f"convert raw --to v0 --source x {HERE}") == 0
    assert call(f"hdf5 v0 h5 --tokenizer encoder.json --max-seq-length 64 --eos-id 0 {HERE}") == 0
    name = "part-000000-00000.h5"
    assert Path("data_dir", name).read_bytes() == Path("h5", name).read_bytes()


def test_help_of_a_mode_is_that_of_the_verb(capsys):
    assert call("hdf5 LMData --help") == 0
    assert "Usage: dolma-dask hdf5" in capsys.readouterr().out
    assert call("hdf5 LMData --no_such_option 3") == 2
    assert "no_such_option" in capsys.readouterr().err
