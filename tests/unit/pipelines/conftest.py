"""A small world for pipelines: raw files, and a pipeline over them."""

import json

import pytest

PIPELINE = """\
variables:
  out: out
  minimum: 3
stages:
  - convert:
      inputs: raw
      to: ${out}/v0
      source: s
  - tag:
      dataset: ${out}/v0
      taggers: [char_length_v1, whitespace_tokenizer_v1]
  - dedupe: {dataset: "${out}/v0"}
  - name: clean
    mix:
      dataset: ${out}/v0
      to: ${out}/v1
      where: exact is None and char_length_v1__char_length_v1__length >= ${minimum}
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The current folder, with raw files and a pipeline in it."""
    (tmp_path / "raw").mkdir()
    for number in range(3):
        rows = [{"id": f"{number}-{row}", "text": "word " * (row % 4)} for row in range(10)]
        (tmp_path / f"raw/{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "p.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path
