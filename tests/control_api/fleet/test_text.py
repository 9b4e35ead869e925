"""CSV files of terminals: written files can be read again; errors name their line."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.fleet import text
from underpass_control.fleet.text import FileError, Flaws, read, written

_NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Z"]) | st.sampled_from("=+-@'\",;<>&"),
    min_size=1,
    max_size=12,
)
_TAGS = st.lists(
    _NAMES.map(lambda name: name.replace(";", "").replace(",", "")).filter(bool),
    max_size=3,
    unique=True,
)


@given(st.lists(st.tuples(_NAMES, _TAGS), max_size=5))
def test_what_is_written_is_read_again(named: list[tuple[str, list[str]]]) -> None:
    terminals: list[dict[str, Any]] = [
        {"node": node, "beam": "ku-1", "name": name, "tags": sorted(tags), "weight": 7}
        for node, (name, tags) in enumerate(named, 1)
    ]
    flaws = Flaws()
    lines = read("".join(written(terminals)).encode(), flaws)
    assert flaws.count == 0, flaws.named
    found = [(one.node, one.values["name"], one.values["tags"]) for one in lines]
    assert found == [(one["node"], one["name"], one["tags"]) for one in terminals]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "'=1+1", "''-1"])
def test_no_cell_is_a_formula_to_a_spreadsheet(name: str) -> None:
    (_, line) = written([{"node": 1, "name": name, "tags": [name]}])
    assert f",'{name}," in line
    (found,) = read(b"node,name,tags\r\n" + f"1,'{name},'{name}\r\n".encode(), Flaws())
    assert found.values == {"name": name, "tags": [name]}


@pytest.mark.parametrize("name", ["Bus;=1+1", "a; @SUM(A1)", "a;;-1;'+2", ";=1", "a;'=1"])
def test_no_cell_is_a_formula_where_semicolons_are_between_cells(name: str) -> None:
    text = "".join(written([{"node": 1, "name": name, "tags": ["=a", "b", "-c"]}]))
    for line in text.splitlines():
        cells = [cell.strip().strip('"') for cell in line.split(";")]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    (found,) = read(text.encode(), Flaws())
    assert (found.values["name"], found.values["tags"]) == (name, ["-c", "=a", "b"])


def flaws_of(content: bytes | str) -> list[tuple[int, str]]:
    flaws = Flaws()
    read(content.encode() if isinstance(content, str) else content, flaws)
    assert len(flaws.named) == flaws.count
    return [(one.line, one.reason) for one in flaws.named]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(("separator", "end"), [(",", "\n"), (";", "\r\n")])
def test_files_as_spreadsheets_write_them(mark: str, separator: str, end: str) -> None:
    rows = [["Node", " name ", "tags"], ["1", "Bus", '"a;b"'], ["", "", ""][:0], ["2", "'tis", ""]]
    content = mark + "".join(separator.join(row) + end for row in rows)
    lines = read(content.encode(), Flaws())
    assert [(one.number, one.node) for one in lines] == [(2, 1), (4, 2)]
    assert [one.values["name"] for one in lines] == ["Bus", "'tis"]
    assert lines[0].values["tags"] == ["a", "b"]


def test_each_bad_line_is_told_with_its_number_and_the_others_are_read() -> None:
    flaws = Flaws()
    content = (
        b'node,name,weight\n1,"two\nlines",1\n2,b\n3,c,1.5\n,d,1\n1,e,1\nx,f,1\n-4,g,1\n5,h,2\n'
        b"6,i,1234567890123456"
    )
    lines = read(content, flaws)
    # Which numbers a column may have is checked later.
    assert [one.node for one in lines] == [1, -4, 5]
    assert [(one.line, one.reason) for one in flaws.named] == [
        (4, "it has 2 cells, the header 3"),
        (5, "weight: '1.5' is no whole number"),
        (6, "node is empty"),
        (7, "line 3 has the node 1, too"),
        (8, "node: 'x' is no whole number"),
        (11, "weight: '1234567890123456' has more than 15 digits"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"name\n1", "no column node"),
        (b"node,nmae\n1,x", "no column 'nmae'"),
        (b"node,node\n1,1", "twice"),
        (b"node,name\n1,a\n2,\xff\n", "line 3 is not UTF-8"),
        (b'node,name\n1,"open\n2,b\n', "line"),
        (b"node,name\n1,a\x00b\n", ""),
        (b"node,name\n1," + b"x" * 200_000, "field larger"),
        (b"PK\x03\x04" + bytes(range(256)), ""),
    ],
)
def test_what_is_no_such_file_is_said_to_be_none(content: bytes, reason: str) -> None:
    try:
        flaws = flaws_of(content)
    except FileError as error:
        assert reason in str(error)
        assert len(str(error)) < 400
    else:
        assert reason == "", flaws


def test_flaws_are_counted_and_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_LINES", 1_000)
    out = io.StringIO("node,weight\n")
    out.seek(0, io.SEEK_END)
    for node in range(1, 1_001):
        out.write(f"{node},{'x' if node % 2 else 1}\n")
    flaws = Flaws()
    assert len(read(out.getvalue().encode(), flaws)) == 500
    assert (flaws.count, len(flaws.named)) == (500, 100)
    out.write("1001,1\n")
    with pytest.raises(FileError, match="more than 1000 lines"):
        read(out.getvalue().encode(), Flaws())
