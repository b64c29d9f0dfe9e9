"""Finding taggers: shipped, registered in the session, and installed as plug-ins, some of them broken."""

import subprocess
import sys

import pyarrow as pa
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.taggers import registry
from dolma_dask.taggers.base import Tagger
from dolma_dask.taggers.gopher import gopher_v2
from dolma_dask.taggers.registry import (
    built_in,
    check_tagger,
    get_tagger,
    list_taggers,
    register_tagger,
    tagger,
)
from dolma_dask.testing.taggers import TaggerTests, can_be_called
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.engine import load_tokenizer


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})


GOOD = """
from dolma_dask.taggers.registry import tagger

@tagger(name="plug_good_v1", types="n")
def good(text):
    "Length, by a plug-in.

    More."
    return len(text)
"""
OTHERS = """
class Handmade:
    name, version, params, types, reads = "plug_class_v1", 3, "{}", {"n": "document"}, ("text",)
    def __call__(self, batch):
        raise NotImplementedError

handmade = Handmade()
number = 5
"""
BROKEN = "import a_package_that_is_not_there\n"
POINTS = {
    "plug_good_v1": "plug_good:good",
    "plug_class_v1": "plug_others:handmade",
    "plug_import_v1": "plug_broken:tagger",
    "plug_attribute_v1": "plug_others:nothing",
    "plug_number_v1": "plug_others:number",
    "plug_type_v1": "plug_others:Handmade",
    "plug_renamed_v1": "plug_others:handmade",
    "gopher_v2": "plug_others:handmade",
}


def install(folder, distribution, points):
    information = folder / f"{distribution}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (information / "entry_points.txt").write_text("\n".join(["[dolma_dask.taggers]", *lines, ""]))


@pytest.fixture
def plug_ins(tmp_path, monkeypatch):
    """A distribution with a good plug-in, and many that cannot work."""
    install(tmp_path, "plug_pack", POINTS)
    (tmp_path / "plug_good.py").write_text(GOOD.replace('"Length', '"""Length').replace('More."', 'More."""'))
    (tmp_path / "plug_others.py").write_text(OTHERS)
    (tmp_path / "plug_broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plug_")]:
        del sys.modules[name]


class TestShipped(TaggerTests):
    @pytest.fixture(params=[*filter(can_be_called, built_in())])
    def tagger(self, request, tmp_path_factory):
        path = tmp_path_factory.getbasetemp() / "tokenizer.json"
        if not path.exists():
            train_tokenizer(["the cat the cat the cat"], path, vocab_size=270)
        return get_tagger(request.param).with_tokenizer(load_tokenizer(path))


def described():
    return {info.name: info for info in list_taggers()}


@pytest.fixture(scope="module")
def shipped():
    return described()


@pytest.mark.parametrize("name", built_in())
def test_shipped_taggers(name, shipped):
    found = get_tagger(name)
    assert isinstance(found, Tagger)
    assert found.name == name
    check_tagger(found)
    info = shipped[name]
    assert (info.version, info.types, info.reads) == (found.version, found.types, found.reads)
    assert (info.origin, info.error) == ("dolma-dask", None)
    assert info.description.endswith(".")


def test_unknown_name_lists_near_ones():
    with pytest.raises(
        UsageError, match="there is no tagger 'gopher_v3'; did you mean 'gopher_v2'"
    ) as caught:
        get_tagger("gopher_v3")
    assert caught.value.details["near"] == ["gopher_v2", "gopher_v1"]
    with pytest.raises(UsageError, match="see them all: dolma-dask list"):
        get_tagger("qqq")


def test_decorated_function_is_found_by_name():
    @tagger(name="marks_v1", types="count")
    def marks(text):
        """Number of exclamation marks."""
        return text.count("!")

    assert get_tagger("marks_v1") is marks
    info = described()["marks_v1"]
    assert (info.description, info.origin, info.types) == (
        "Number of exclamation marks.",
        __name__,
        {"count": "document"},
    )
    assert info.version == marks.version
    again = tagger(name="marks_v1", types="count")(len)
    assert get_tagger("marks_v1") is again


def test_handmade_object_is_registered(plug_ins):
    import plug_others

    assert register_tagger(plug_others.handmade) is get_tagger("plug_class_v1")
    for wrong in (plug_others.Handmade, 5, None):
        with pytest.raises(UsageError, match="is not a tagger; expected an object"):
            register_tagger(wrong)


def test_plug_in_is_found_and_works(plug_ins):
    found = get_tagger("plug_good_v1")
    assert found(
        pa.RecordBatch.from_arrays([pa.array(["abc"], pa.large_string())], names=["text"])
    ).to_pylist() == [{"n": 3.0}]
    assert get_tagger("plug_class_v1").version == 3


def test_nothing_is_imported_before_it_is_asked_for(plug_ins):
    get_tagger("char_length_v1")
    with pytest.raises(UsageError, match="did you mean 'plug_good_v1'"):
        get_tagger("plug_good")
    assert not [name for name in sys.modules if name.startswith("plug_")]
    get_tagger("plug_class_v1")
    assert [name for name in sys.modules if name.startswith("plug_")] == ["plug_others"]


def test_finding_names_imports_no_compiler():
    code = "import sys, dolma_dask.taggers.registry as r; r.get_tagger('char_length_v1'); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "name, why",
    [
        ("plug_import_v1", "ModuleNotFoundError: No module named 'a_package_that_is_not_there'"),
        ("plug_attribute_v1", "AttributeError: .*nothing"),
        ("plug_number_v1", "UsageError: 5 is not a tagger; expected an object"),
        ("plug_type_v1", "UsageError: .* is not a tagger; expected an object"),
        ("plug_renamed_v1", "calls itself 'plug_class_v1'"),
    ],
)
def test_broken_plug_in_is_named(plug_ins, name, why):
    with pytest.raises(UsageError, match=f"plug-in tagger '{name}' of plug_pack .*{why}") as caught:
        get_tagger(name)
    assert caught.value.details == {"tagger": name, "origin": "plug_pack"}
    assert described()[name].error == str(caught.value)


def test_broken_plug_ins_hide_no_others(plug_ins):
    infos = list_taggers()
    usable = [info.name for info in infos if info.error is None]
    assert usable == sorted([*built_in(), "plug_class_v1", "plug_good_v1"])
    assert [info.name for info in infos if info.error] == sorted(POINTS.keys() - set(usable) | {"gopher_v2"})
    good = described()["plug_good_v1"]
    assert (good.description, good.origin) == ("Length, by a plug-in.", "plug_pack")


def test_plug_in_cannot_take_the_name_of_a_shipped_tagger(plug_ins):
    assert get_tagger("gopher_v2") is gopher_v2
    (error,) = [info.error for info in list_taggers() if info.name == "gopher_v2" and info.error]
    assert error == "'gopher_v2' is a tagger shipped with dolma_dask, which is used instead"


def test_two_plug_ins_of_one_name_are_refused(plug_ins):
    install(plug_ins, "another_pack", {"plug_good_v1": "plug_others:handmade"})
    with pytest.raises(
        UsageError, match="several plug-ins bring a tagger 'plug_good_v1': another_pack, plug_pack"
    ):
        get_tagger("plug_good_v1")
    assert [info.error is None for info in list_taggers() if info.name == "plug_good_v1"] == [False, False]


def test_session_tagger_comes_before_a_plug_in(plug_ins):
    mine = tagger(name="plug_class_v1", types="n")(len)
    assert get_tagger("plug_class_v1") is mine
    assert [info.origin for info in list_taggers() if info.name == "plug_class_v1"] == [
        "builtins",
        "plug_pack",
    ]


def test_a_taggers_own_description_counts():
    class Described:
        """Docstring of the class."""

        name, version, params, types, reads = "described_v1", 1, "{}", {"n": "document"}, ("text",)
        function = len

    assert registry.describe(Described(), "here").description == "Docstring of the class."
    Described.description = "Words of its own."
    assert registry.describe(Described(), "here").description == "Words of its own."
