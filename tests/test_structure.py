"""What must stay true of the house: classes in one file and composed, rooms with doors, one meaning for a file name."""

from __future__ import annotations

import pytest

import structure

# Classes that one class alone inherits from, each with its reason.
LONE_BASES = {
    "Asynchronous": "a solver of its own; `Deadlines` is the same one with rounds that close after some time",
    "OfAStream": "the rows of the table that are parameters of `StreamingPCA`, in the one file of settings",
    "OfOneFit": "the same for `DecentralizedPCA`",
    "SequentialPower": "a solver of its own; the distributed one mixes where this one averages",
}
# Names of files that lie in several rooms, because they are the same thing in each.
SHARED_NAMES = {
    "fit": "the command, and the function that it calls",
    "stream": "what a node keeps of a stream, and the fit of a batch of it",
}
# A file is an idea. One that takes more lines than this says why in its docstring.
LONGEST = 800


@pytest.fixture(scope="module")
def trees():
    return structure.sources()


def test_a_base_class_has_several_subclasses(trees):
    assert set(structure.lone_bases(trees)) == set(LONE_BASES)
    assert len(LONE_BASES) <= 5


def test_no_room_imports_a_private_module_of_another(trees):
    assert structure.private_imports(trees) == []


def test_a_file_name_means_one_thing(trees):
    assert set(structure.shared_names(trees)) == set(SHARED_NAMES)


def test_no_file_is_too_long_to_be_seen(trees):
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}


def test_a_masked_sum_of_sites_passes_few_files():
    pytest.importorskip("cryptography")
    passed = structure.path_of_a_masked_sum()
    assert passed["files"] <= 18
    assert passed["handovers"] <= 12


def test_lone_bases_private_imports_and_shared_names_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(structure, "SOURCE", tmp_path)
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    for file, text in {
        "one/_hidden.py": "class Base: ...\nclass Held: ...\n",
        "one/thing.py": "class Only(Base): ...\nclass A(Held): ...\nclass B(Held): ...\n",
        "two/thing.py": "from eigenmesh.one._hidden import Base\nfrom eigenmesh.one import thing\n",
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    found = structure.sources()
    assert structure.lone_bases(found) == ["Base"]
    assert structure.private_imports(found) == ["two/thing.py:1 eigenmesh.one._hidden"]
    assert structure.shared_names(found) == ["thing"]
