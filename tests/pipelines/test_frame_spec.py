"""Specifications: every key, every value that makes no sense, and which files a pattern means."""
from __future__ import annotations

import pytest

from asdstore.errors import InputError, MissingError
from pipelines.frame_spec import FrameSpec, files, parse_spec

MIB = 1 << 20


def test_defaults_and_the_documents_example():
    assert parse_spec("a.pfile") == FrameSpec("a.pfile", partition=600 * MIB, stream=False, random=False)
    found = parse_spec("train.pfile,context=5,ignore-label=0:3-9,map-label=1:0/2:1,partition=1000m")
    assert found == FrameSpec("train.pfile", 5, 5, ((0, 0), (3, 9)), ((1, 1, 0), (2, 2, 1)), 1000 * MIB)
    assert parse_spec("valid.pfile,stream=false,random=true").random
    assert parse_spec("a.scp,label=b.ali,label-column=1")[-3:-1] == ("b.ali", 1)


@pytest.mark.parametrize("options,left,right", [("context=5", 5, 5), ("context=5:1", 5, 1), ("lcxt=5,rcxt=1", 5, 1),
                                                ("context=1,lcxt=0", 0, 1), ("lcxt=0,context=1", 1, 1), ("rcxt=3", 0, 3)])
def test_context_is_read_from_left_to_right(options, left, right):
    found = parse_spec("a.pfile," + options)
    assert (found.left, found.right) == (left, right)


@pytest.mark.parametrize("value,on", [("true", True), ("True", True), ("yes", True), ("1", True), ("Tomorrow", True),
                                      ("false", False), ("no", False), ("0", False)])
def test_switches(value, on):
    found = parse_spec(f"a.pfile,random={value},stream={value}")
    assert found.random is found.stream is on and not found.notes


def test_a_switch_that_pdnn_takes_for_false_is_noted():
    found = parse_spec("a.pfile,random=on")
    assert not found.random and "random=on is false" in found.notes[0]


def test_later_options_win():
    found = parse_spec("a.pfile,ignore-label=0,ignore-label=3,map-label=1:0/1:5,partition=1,partition=2m")
    assert found.ignore == ((3, 3),) and found.mapping == ((1, 1, 0), (1, 1, 5)) and found.partition == 2 * MIB


@pytest.mark.parametrize("option", [
    "context=1:2:3", "context=-1", "context=", "context=a", "lcxt=-1", "rcxt=1.5", "partition=1.5m", "partition=m",
    "partition=0", "partition=-1", "ignore-label=9-3", "ignore-label=-1", "ignore-label=", "ignore-label=0::2",
    "map-label=1", "map-label=1:a", "map-label=1:0/", "context", "map-label=9-3:1", "label-column=x", "", "foo=bar",
    "Context=5", " context=5", "ignore-label=2147483648", "map-label=1:2147483648"])
def test_values_that_make_no_sense(option):
    with pytest.raises(InputError) as e:
        parse_spec("a.pfile," + option)
    assert e.value.kind == "spec" and e.value.fault.file.startswith("a.pfile") and e.value.fault.found


def test_labels_of_32_bits_have_names():
    found = parse_spec("a.pfile,ignore-label=2147483647,map-label=1999999999-2147483647:2147483647")
    assert found.ignore == ((2**31 - 1, 2**31 - 1),) and found.mapping == ((1999999999, 2**31 - 1, 2**31 - 1),)


def test_unknown_keys_say_what_may_be_meant():
    with pytest.raises(InputError, match="Did you mean 'ignore-label'"):
        parse_spec("a.pfile,ignore-lable=0")
    with pytest.raises(InputError, match="Did you mean 'partition'"):
        parse_spec("a.pfile,partitions=600m")
    with pytest.raises(InputError, match="before the first comma"):
        parse_spec(",context=5")


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.pfile.10.gz", "train.pfile.2.gz", "train.pfile.1.gz", "a[1].pfile", "x.pkl"):
        (tmp_path / name).touch()
    assert files("train.pfile.*.gz") == ["train.pfile.1.gz", "train.pfile.10.gz", "train.pfile.2.gz"]  # in the order of names
    assert files("a[1].pfile") == ["a[1].pfile"] and files("train.pfile.[12].gz")[1] == "train.pfile.2.gz"
    for pattern, said in (("nosuch.pickle.gz", "none"), ("nosuch/*.pfile", "no folder nosuch"), ("*/a.pfile", "none")):
        with pytest.raises(MissingError) as e:
            files(pattern)
        assert pattern in str(e.value) and said in str(e.value) and str(tmp_path) in str(e.value)
    with pytest.raises(InputError, match="pfile, pickle"):
        files("*")
