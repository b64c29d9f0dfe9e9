"""Segments of token files: they and the documents, encoded again, explain every token of every row, in each format and each mode of rows."""

import json
from collections import defaultdict
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from token_readers import READERS
from tokenizers import Tokenizer

import dolma_dask as dk
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.segments import SEGMENTS_SCHEMA
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.outputs.hdf5.options import RowOptions
from dolma_dask.outputs.hdf5.raw import RawTexts
from dolma_dask.outputs.ragged import ArrayOptions
from dolma_dask.reading.segments import read_segments, token_files
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.filling import ID
from dolma_dask.tokens.modes import Mode
from dolma_dask.tokens.toolkit import strip

HERE = {"scheduler": "synchronous", "progress": False, "on_bad_record": "quarantine", "max_bad_fraction": 0.5}
FIM = {"fim_prefix_tok": "<|a|>", "fim_middle_tok": "<|b|>", "fim_suffix_tok": "<|c|>"}
PAIRS = {"multi_turn_key": "metadata.turns", "min_sequence_len": 2}
ANSWERS = {"prompt_key": "metadata.q", "chosen_key": "metadata.a", "rejected_key": "metadata.b"}
SHORT = {"max_seq_length": 16, "min_sequence_len": 2}
ROWS = {
    "stream": {**SHORT},
    "stream dropped": {**SHORT, "tail": "drop", "eos": "none"},
    "stream short": {**SHORT, "short_seq_prob": 0.5, "seed": 3},
    "stream like modelzoo": {**SHORT, "short_seq_prob": 0.3, "compat": "modelzoo-2.2"},
    "each": {**SHORT, "pack_sequences": False},
    "each short": {**SHORT, "pack_sequences": False, "short_seq_prob": 0.5},
    "best_fit": {**SHORT, "mode": "LMData_VSL"},
    "next_fit": {**SHORT, "mode": "LMData_VSL", "packing": "next_fit", "short_seq_prob": 0.4},
    "like modelzoo": {**SHORT, "mode": "LMData_VSL", "compat": "modelzoo-2.2", "max_chunk_size": 1},
    "no fim": {**SHORT, **FIM, "mode": "FIM", "fim_rate": 0.0},
    "no fim, ends in texts": {
        **SHORT,
        **FIM,
        "mode": "FIM",
        "fim_rate": 0.0,
        "special_tokens_in_text": "encode",
    },
    "fim": {**SHORT, **FIM, "mode": "FIM", "max_seq_length": 24},
    "pairs": {**PAIRS, "mode": "Summarization", "max_seq_length": 60},
    "dialogues": {**PAIRS, "mode": "Summarization_VSL", "max_seq_length": 150},
    "preferences": {**ANSWERS, "mode": "DPO", "max_seq_length": 40, "max_prompt_length": 10},
}
WORDS = "one two naïve café 日本語 👩\u200d👧 word Straße שלום <|a|> <|endoftext|>".split()  # noqa: SIM905


def text_of(row: int) -> str:
    """Return a text of no word, one, few or hundreds."""
    count = (0, 1, 3, 20, 2, 7, 150)[row % 7]
    return " ".join(WORDS[(row + place * place) % len(WORDS)] for place in range(count))


def record(row: int) -> dict[str, object]:
    turns = [text_of(7 * place + 2) for place in range(2 * (row % 3) + 2)]
    sides = {"q": text_of(row % 5 * 7 + 3), "a": text_of(2 + row % 4), "b": "two one"}
    return {
        "id": f"é{row}",
        "source": f"s{row % 3}",
        "text": text_of(row),
        "metadata": {"turns": turns, **sides},
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Four shards, one of them empty, with a line that is no record and one of which no pair can be made."""
    root = tmp_path_factory.mktemp("segments")
    rows = [json.dumps(record(row), ensure_ascii=False) for row in range(60)]
    rows[11], rows[40] = "{", rows[40].replace("one", "")
    (root / "v0/documents/a").mkdir(parents=True)
    for name, lines in (("a/0", rows[:3]), ("1", rows[3:45]), ("2", []), ("a/3", rows[45:])):
        (root / f"v0/documents/{name}.jsonl").write_text("".join(line + "\n" for line in lines))
    train_tokenizer([text_of(row) for row in range(60)], root / "tokenizer.json", 330)
    tokenizer = Tokenizer.from_file(str(root / "tokenizer.json"))
    tokenizer.add_special_tokens(list(FIM.values()))
    tokenizer.save(str(root / "tokenizer.json"))
    return root


def document(root: Path, segment: dict) -> bytes:
    """Return the line of the document that a segment names."""
    return (root / segment["path"]).read_text().split("\n")[segment["document"]].encode()


def rows_by_number(table: pa.Table) -> dict[int, list[dict]]:
    assert table.schema.equals(SEGMENTS_SCHEMA)
    rows = defaultdict(list)
    for segment in table.to_pylist():
        rows[segment["row"]].append(segment)
    assert list(rows) == sorted(rows)
    return rows


def check_owner(root: Path, segment: dict) -> bytes:
    line = document(root, segment)
    known = json.loads(line)
    assert (segment["id"], segment["source"]) == (known["id"], known["source"])
    return line


# ------------------------------------------------------------------------------------------------ a row per document


def check_documents(root: Path, folder: Path, options: ArrayOptions) -> int:
    """Check that each row is the document that its segment names; return how many there are."""
    output, checked = options.output(str(folder)), 0
    for file in token_files(str(folder)):
        assert (file.format, file.has_segments) == (options.format, True)
        rows = READERS[options.format](str(folder / file.path).removesuffix(FORMATS[options.format].data))
        by_row = rows_by_number(read_segments(str(folder), file.path))
        assert list(by_row) == list(range(len(rows)))
        for row, found in by_row.items():
            (segment,) = found
            texts = pa.array([json.loads(check_owner(root, segment))["text"]], pa.large_string())
            texts = strip(texts) if options.compat else texts
            expected = output.how.frame(output.how.encode(output.engine, texts), output.framing)
            assert rows[row] == expected.ids.tolist()
            assert [segment[name] for name in ("first", "place", "start", "size")] == [
                0,
                0,
                0,
                len(rows[row]),
            ]
        checked += len(rows)
    return checked


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_of_a_token_file_is_its_document(name, world, tmp_path):
    given = {"tokenizer": str(world / "tokenizer.json"), "bos": "<|a|>", "format": name}
    dk.ragged(world / "v0", tmp_path, **given, **HERE)
    assert check_documents(world / "v0", tmp_path, ArrayOptions(**given)) == 59
    assert len(token_files(str(tmp_path))) == 4


@pytest.mark.parametrize("order", [{}, {"shuffle": True, "seed": 5}])
@pytest.mark.parametrize("name", [name for name, known in FORMATS.items() if known.is_stream])
def test_files_of_documents_from_several_shards(name, order, world, tmp_path):
    given = {"tokenizer": str(world / "tokenizer.json"), "compat": "dolma-1.2", "format": name}
    dk.ragged(world / "v0", tmp_path, max_size=1900, **order, **given, **HERE)
    files = token_files(str(tmp_path))
    assert len(files) > 2
    assert check_documents(world / "v0", tmp_path, ArrayOptions(**given)) == 50  # nine have no text
    paths = [set(read_segments(str(tmp_path), one.path)["path"].to_pylist()) for one in files]
    assert any(len(each) > 1 for each in paths)


def test_joined_files_keep_their_segments(world, tmp_path):
    given = {"tokenizer": str(world / "tokenizer.json"), "format": "dolma"}
    dk.ragged(world / "v0", tmp_path / "in", **given, **HERE)
    here = {"scheduler": "synchronous", "progress": False}
    dk.reshard(tmp_path / "out", sources=[str(tmp_path / "in")], rates=[2.0], shards=2, **here)
    for number in range(2):  # the plain reader wants the type of ids
        (tmp_path / f"out/{number:06d}.json").write_text('{"dtype": "<u2"}')
    assert check_documents(world / "v0", tmp_path / "out", ArrayOptions(**given)) == 2 * 59
    (tmp_path / "in/_segments/v0.00001-of-00004.npy.parquet").unlink()
    summary = dk.reshard(tmp_path / "less", sources=[str(tmp_path / "in")], shards=3, **here)
    assert "1 file without segments" in str(summary)
    assert sorted(one.has_segments for one in token_files(str(tmp_path / "less"))) == [False, True, True]


# ------------------------------------------------------------------------------------------------ rows of HDF5


def tokens_of(root: Path, segment: dict, mode: Mode) -> list[int]:
    """Return the tokens of a document, which is encoded again."""
    line = check_owner(root, segment)
    text = pa.array([line], pa.large_binary()) if mode.recipe.reads == "raw" else [json.loads(line)["text"]]
    tokens, _ = mode.recipe.encode(text if mode.recipe.reads == "raw" else pa.array(text, pa.large_string()))
    return (tokens.ids & ID if mode.recipe.has_marks else tokens.ids).tolist()


def explained(root: Path, found: list[dict], mode: Mode) -> tuple[dict, dict]:
    """Return the tokens that segments of a row give to positions of its inputs and labels; no position has two."""
    inputs, labels, sides = {}, {}, -1
    runs = defaultdict(list)
    for segment in found:
        sides += segment["first"] == segment["place"] == 0
        runs[sides if mode.name == "DPO" else 0, segment["first"]].append(segment)
    for (side, first), segments in runs.items():
        last = max(one["place"] + one["size"] for one in segments) - 1
        assert segments[0]["place"] == first
        for one in segments:
            tokens = tokens_of(root, one, mode)[one["start"] : one["start"] + one["size"]]
            if mode.name == "FIM":  # each piece has an end, also where the row goes on to no document
                tokens = [*tokens[: one["size"] - 1], mode.specials.eos_id]
            assert len(tokens) == one["size"] > 0 or mode.name == "FIM"
            for place in range(one["place"], one["place"] + one["size"]):
                token = tokens[place - one["place"]] if place - one["place"] < len(tokens) else None
                if place < mode.length and (place < last or mode.shows_last or mode.name in ("DPO", "FIM")):
                    assert (side, place) not in inputs
                    inputs[side, place] = token
                if place > first:
                    assert (side, place - 1) not in labels
                    labels[side, place - 1] = token
    return inputs, labels


def check_row(row: np.ndarray, inputs: dict, labels: dict, mode: Mode) -> int:
    """Check the channels of a row against what explains them; return the positions of ids that nothing explains."""
    pad = mode.specials.pad_id
    for (side, place), token in inputs.items():
        assert row[3 * side, place] == token
    for (side, place), token in labels.items():
        is_hidden = mode.name == "DPO" and not row[3 * side + 1, place]
        assert row[3 * side + 2, place] == (pad if is_hidden else token)
    every = [(side, place) for side in range(len(mode.ids)) for place in range(mode.length)]
    assert all(row[3 * side, place] == pad for side, place in every if (side, place) not in inputs)
    assert all(row[3 * side + 2, place] == pad for side, place in every if (side, place) not in labels)
    seen = 0 if mode.inverted_mask else 1
    assert all((side, place) in labels for side, place in every if row[3 * side + 1, place] == seen)
    return len(every) - len(inputs)


def check_rearranged(root: Path, row: np.ndarray, found: list[dict], mode: Mode, engine: Tokenizer) -> None:
    """Check that each segment of a row of FIM is a piece of its document, put in order again."""
    whole = np.append(row[0], row[2, -1])
    for one in found:
        tokens = whole[one["place"] : one["place"] + one["size"]].tolist()
        names = [engine.token_to_id(FIM[f"fim_{name}_tok"]) for name in ("prefix", "suffix", "middle")]
        assert tokens[-1] == mode.specials.eos_id or one["place"] + one["size"] == mode.length + 1
        parts, name = {None: []}, None
        for token in tokens[:-1]:
            name = token if token in names else name
            parts.setdefault(name, []).extend([token] * (token not in names))
        prefix, suffix, middle = (parts.get(name, []) for name in names)
        text = json.loads(check_owner(root, one))["text"]
        order = [prefix, middle, suffix] if len(parts) > 1 else [parts[None]]
        if len(parts) > 1 and not prefix:  # PREFIX SUFFIX suffix MIDDLE prefix middle
            order = [middle, suffix]
        for part in order:
            assert engine.decode(part, skip_special_tokens=False).strip("\ufffd") in text


def read_rows(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["data"][:]


def check_rows(root: Path, folder: Path, options: RowOptions) -> list[dict]:
    """Check every row of a folder; return all segments."""
    mode, pads, every = options.build(options.opened()), 0, []
    engine = Tokenizer.from_file(options.tokenizer)
    for file in token_files(str(folder)):
        assert (file.format, file.has_segments) == ("hdf5", True)
        rows, table = read_rows(folder / file.path), read_segments(str(folder), file.path)
        by_row = rows_by_number(table)
        assert list(by_row) == list(range(len(rows)))
        for number, found in by_row.items():
            inputs, labels = explained(root, found, mode)
            if mode.name == "FIM" and options.fim_rate:
                check_rearranged(root, rows[number], found, mode, engine)
                inputs, labels = (
                    {at: rows[number, channel, at[1]] for at in of}
                    for channel, of in ((0, inputs), (2, labels))
                )
            pads += check_row(rows[number], inputs, labels, mode)
        every += table.to_pylist()
    params = json.loads((folder / "data_params.json").read_text())
    assert pads == params["post-process"]["num_pad_tokens"]
    return every


def write_rows(world: Path, to: Path, name: str, **more) -> RowOptions:
    given = {"tokenizer": str(world / "tokenizer.json"), **ROWS[name]}
    dk.hdf5(world / "v0", to, max_rows_per_file=4, **given, **HERE, **more)
    return RowOptions(**given)


@pytest.mark.parametrize("name", ROWS)
def test_segments_explain_every_token(name, world, tmp_path, monkeypatch):
    monkeypatch.setattr("dolma_dask.tokens.packing.MAX_SEGMENTS", 20)
    monkeypatch.setattr("dolma_dask.outputs.hdf5.rows.BATCH_BYTES", 1000)
    monkeypatch.setattr("dolma_dask.outputs.hdf5.owners.BATCH_ROWS", 4)
    options = write_rows(world, tmp_path / "plain", name)
    plain = check_rows(world / "v0", tmp_path / "plain", options)
    assert len(token_files(str(tmp_path / "plain"))) > 1
    monkeypatch.setattr("dolma_dask.outputs.hdf5.shuffling.ROWS_OF_A_TASK", 5)
    write_rows(world, tmp_path / "shuffled", name, shuffle=True)
    shuffled = check_rows(world / "v0", tmp_path / "shuffled", options)
    without_row = [sorted(str({**one, "row": 0}) for one in some) for some in (plain, shuffled)]
    assert without_row[0] == without_row[1]


# ------------------------------------------------------------------------------------------------ what is looked up


def test_documents_without_ids_are_known_by_file_and_row(world, tmp_path):
    """Raw records: a line is a row; neighbouring text files are read together, and each is a document."""
    (tmp_path / "raw/notes").mkdir(parents=True)
    lines = [json.dumps({"text": text_of(row)}) + "\n" for row in (2, 3, 5)]
    (tmp_path / "raw/a.jsonl").write_text("".join(lines))
    for number in range(3):
        (tmp_path / f"raw/notes/{number}.txt").write_text(text_of(number + 1))
    given = {"tokenizer": str(world / "tokenizer.json"), **ROWS["each"], **HERE}
    dk.hdf5(RawTexts(str(tmp_path / "raw")), tmp_path / "out", **given)
    (file,) = token_files(str(tmp_path / "out"))
    table = read_segments(str(tmp_path / "out"), file.path)
    assert table.column("id").null_count == table.column("source").null_count == len(table)
    seen = set(zip(table.column("path").to_pylist(), table.column("document").to_pylist(), strict=True))
    assert seen == {*(("a.jsonl", row) for row in range(3)), *((f"notes/{row}.txt", 0) for row in range(3))}


def test_rows_are_looked_up_in_their_row_groups(world, tmp_path, monkeypatch):
    monkeypatch.setattr("dolma_dask.sinks.segments.GROUP_ROWS", 3)
    write_rows(world, tmp_path, "stream")
    name = token_files(str(tmp_path))[0].path
    whole = read_segments(str(tmp_path), name)
    for wanted in (0, 2, [3, 1], range(4), [], [10**9], -1):
        rows = [wanted] if isinstance(wanted, int) else list(wanted)
        expected = [one for one in whole.to_pylist() if one["row"] in rows]
        assert read_segments(str(tmp_path), name, wanted).to_pylist() == expected


def test_files_of_a_store_are_as_local_ones(world, tmp_path):
    given = {"tokenizer": str(world / "tokenizer.json"), "name": "x", **HERE}
    dk.ragged(world / "v0", tmp_path, **given)
    dk.ragged(world / "v0", "memory://tokens", **given)
    local, stored = token_files(str(tmp_path)), token_files("memory://tokens")
    assert local == stored
    for file in local:
        assert read_segments(str(tmp_path), file.path).equals(read_segments("memory://tokens", file.path))
        assert read_segments("memory://tokens", file.path, 0).num_rows <= 1


@pytest.mark.parametrize("rows", [None, 3])
def test_damaged_segments_are_told_as_such(rows, world, tmp_path):
    """Whatever is wrong: their end, a byte of a page, or their columns."""
    dk.ragged(str(world / "v0"), str(tmp_path), tokenizer=str(world / "tokenizer.json"), **HERE)
    url = sorted(tmp_path.glob("_segments/*"))[0]
    name, whole = url.name.removesuffix(".parquet"), url.read_bytes()
    ids = pq.read_metadata(url).row_group(0).column(SEGMENTS_SCHEMA.get_field_index("id"))
    first = ids.dictionary_page_offset if ids.has_dictionary_page else ids.data_page_offset
    start = first + ids.total_compressed_size - 3
    flipped = whole[:start] + bytes([whole[start] ^ 255]) + whole[start + 1 :]
    other = pa.BufferOutputStream()
    pq.write_table(pa.table({"row": [0]}), other)
    for content in (whole[:-50], b"", flipped, other.getvalue().to_pybytes()):
        url.write_bytes(content)
        with pytest.raises(CorruptFileError, match="_segments/"):
            read_segments(str(tmp_path), name, rows)


def test_what_is_no_token_file(world, tmp_path):
    dk.ragged(world / "v0", tmp_path, tokenizer=str(world / "tokenizer.json"), **HERE)
    found = token_files(str(tmp_path))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    (tmp_path / "x.npy").write_bytes(b"")
    assert token_files(str(tmp_path)) == found
    (tmp_path / "_segments" / f"{found[0].path}.parquet").unlink()
    assert [one.has_segments for one in token_files(str(tmp_path))] == [False, True, True, True]
    with pytest.raises(UsageError, match=r"has no segments: .*_segments/v0"):
        read_segments(str(tmp_path), found[0].path)


def test_a_token_file_without_its_segments_is_made_again(world, tmp_path):
    given = {"tokenizer": str(world / "tokenizer.json"), **HERE}
    dk.ragged(world / "v0", tmp_path, **given)
    path = tmp_path / "_segments" / f"{token_files(str(tmp_path))[1].path}.parquet"
    before = path.read_bytes()
    path.unlink()
    assert dk.ragged(world / "v0", tmp_path, **given).done == 1
    assert path.read_bytes() == before


def test_segments_go_with_their_token_files(world, tmp_path):
    given = {"tokenizer": str(world / "tokenizer.json"), **ROWS["stream"], **HERE}
    dk.hdf5(world / "v0", tmp_path, max_rows_per_file=4, **given)
    many = len(token_files(str(tmp_path)))
    dk.hdf5(world / "v0", tmp_path, max_rows_per_file=400, overwrite=True, **given)
    names = {one.path for one in token_files(str(tmp_path))}
    assert len(names) < many
    assert {path.name for path in (tmp_path / "_segments").iterdir()} == {f"{name}.parquet" for name in names}
