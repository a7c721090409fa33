"""Lines of one layout are read without a parser: what is read is what the expression and Arrow's JSON reader have of
each line alone."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.sources.values import fast_json

VALUES = {
    "id": ("string", ['"a"', '""', '"{}"', '"null"', '"é€😀"', '" , "', '"\u2028"']),
    "user": ("bigint", ["0", "-0", "7", "-12", "9" * 18, "123456"]),
    "tiny": ("tinyint", ["0", "-99", "5"]),
    "yes": ("boolean", ["true", "false"]),
    "real": ("double", ["0", "0.5", "-1.25", "-0.0", "-7", "123456789012345.123456789"]),
    "at": ("timestamp", ['"2026-03-01T12:00:00Z"', '"2026-03-01 12:00:00.5"', '"9999-12-31T23:59:59.999999-17:59"']),
    "day": ("date", ['"2026-03-01"', '"2024-02-29"', '"1000-01-01"']),
    "odd (name).*": ("string", ['"x"', '"a:b,c"']),
}  # fmt: skip
KINDS = {name: kind for name, (kind, _) in VALUES.items()}
SPACES = [(":", ",", "{", "}"), (": ", ", ", "{", "}"), (" : ", " , ", "{ ", " }")]
EDITS = [
    '"', '""', '","id":"b', '","user":5,"id":"', "{", "}", "}{", '{"id":"a"}', "\\", '\\"', "\t", "\0", "\n", " ", "é", "\ud800", "0", "-", "+", ".",
    "e5", "9" * 20, "null", "true", "NaN", "Infinity", ",", ":", "[1]", "2026-02-30", "Z", "24:00", "T", "x",
]  # fmt: skip


def block(chance: random.Random) -> list[bytes]:
    """Lines of one layout; some are edited, some have exchanged a part with their neighbour."""
    names = chance.sample([*VALUES], chance.randint(1, len(VALUES)))
    colon, comma, begin, end = chance.choice(SPACES)
    times = chance.choice([["1772366400", "0", "-5"], VALUES["at"][1]])
    lines = []
    for _ in range(12):
        values = {name: chance.choice(times if name == "at" else VALUES[name][1]) for name in names}
        lines.append(begin + comma.join(f'"{name}"{colon}{value}' for name, value in values.items()) + end)
    for at in range(len(lines)):
        while chance.random() < 0.25:
            lines[at] = edited(chance, lines[at])
        if at and chance.random() < 0.1:
            both, cut = lines[at - 1] + lines[at], chance.randrange(len(lines[at]) + 1)
            lines[at - 1 : at + 1] = both[:cut], both[cut:]
    return [line.encode(errors="surrogatepass") for line in lines]


def edited(chance: random.Random, line: str) -> str:
    """A text put in, taken out, or moved."""
    begin = chance.randrange(len(line) + 1)
    end = min(begin + chance.choice([0, 0, 1, 1, 2, 5]), len(line))
    rest = line[:begin] + line[end:]
    put = chance.choice(EDITS) if chance.random() < 0.7 else line[begin:end]
    at = chance.choice([begin, chance.randrange(len(rest) + 1)])
    return rest[:at] + put + rest[at:]


def shaped(lines: list[bytes]) -> pa.Array:
    """As a source gives them: bytes that nobody has looked at yet."""
    return pa.array(lines, pa.binary()).view(pa.string())


def records(lines: pa.Array) -> list[Any]:
    """The record of each line that is read; None for one that is not."""
    found, columns = fast_json.read_plain(lines, KINDS)
    rows = iter(
        zip(
            *(
                map(repr, column.cast(pa.binary()).to_pylist() if pa.types.is_string(column.type) else column)
                for column in columns
            ),
            strict=True,
        )
    )
    return [next(rows) if one else None for one in found.to_pylist()]


@pytest.mark.parametrize("seed", range(8))
def test_a_line_in_a_block_has_the_record_that_it_has_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks by chance with every kind of odd line among others.

    Lines that are cut into their values are some hundreds of them.
    """
    chance, cut = random.Random(seed), []
    read = fast_json.read_by_template

    def watched(*given: Any) -> Any:
        cut.append(read(*given))
        return cut[-1]

    monkeypatch.setattr(fast_json, "read_by_template", watched)
    blocks = [shaped(block(chance)) for _ in range(60)]
    together = [records(lines) for lines in blocks]
    monkeypatch.setattr(fast_json, "read_by_template", lambda *given: None)

    for lines, here in zip(blocks, together, strict=True):
        for row, found in enumerate(here):
            assert found in (None, *records(lines.slice(row, 1))), lines[row]
    assert 150 < sum(len(one.rows) for one in cut if one) < 600


USUAL = '{"id":"a","user":5,"at":"2026-03-01T12:00:00Z"}'
SPACED = '{"id" : "a" , "user" : 5 , "at" : "2026-03-01T12:00:00Z" }'


ODD = {
    "twice": USUAL + USUAL, "cut": USUAL[:-1], "no begin": USUAL[1:], "space behind": USUAL + " ", "space before": " " + USUAL, "sign before": "x" + USUAL,
    "no value": USUAL.replace("5", ""), "zero first": USUAL.replace("5", "05"), "fraction": USUAL.replace("5", "5.0"), "null": USUAL.replace("5", "null"),
    "too large": USUAL.replace("5", "9" * 20), "other key": USUAL.replace("user", "tiny"), "escape": USUAL.replace("a", "a\\n", 1),
    "tab": USUAL.replace('"a"', '"a\t"'), "key twice": USUAL.replace('"a"', '"a","id":"b"'), "no key": USUAL.replace(',"user":5', ""),
    "hour 25": USUAL.replace("12:00:00", "25:00:00"), "neither value nor space": SPACED.replace(" 5", ""), "other spaces": SPACED, "nothing": "", "text": "x",
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_line_costs_no_other_line_its_place(odd: str) -> None:
    """Lines of the layout are cut into their values beside it, also where the array begins within its buffers; it is
    not."""
    usual = SPACED if odd.count(" : ") == 3 and odd != SPACED else USUAL
    lines = pa.array(["x", usual, usual, odd, None, usual, usual, usual])[1:]

    lines_of_template = fast_json.read_by_template(lines, KINDS)

    assert lines_of_template is not None
    assert lines_of_template.rows.tolist() == [0, 1, 4, 5, 6]
    assert lines_of_template.texts["id"].to_pylist() == ["a"] * 5
    assert lines_of_template.texts["user"].to_pylist() == ["5"] * 5


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"\xf0\x80\x80\x80", b"\xe0\x80\x80", b"\xc1\xbf"]
)
def test_bytes_that_are_no_signs_leave_their_line_to_sparks_parser(bad: bytes) -> None:
    """Which puts a sign for them. RE2 has some of them for signs, so a block by the expression asks too."""
    good = USUAL.replace("a", "é€😀\ud7ff\U0010ffff\ue000", 1).encode()
    for other in (good, b'{"user":5}'):
        lines = shaped([good, other, USUAL.encode().replace(b"a", bad, 1)])
        assert [one is None for one in records(lines)] == [False, False, True]


def test_columns_that_a_layout_has_not_or_has_as_null_are_null() -> None:
    """A program writes nothing, or null, for what it does not have."""
    lines = pa.array(['{"user":null,"id":"a"}', '{"user":null,"id":"b"}'])
    lines_of_template = fast_json.read_by_template(lines, KINDS)

    assert lines_of_template is not None
    assert [*lines_of_template.texts] == ["id"]
    found, columns = fast_json.read_plain(lines, {"id": "string", "user": "bigint", "yes": "boolean"})
    assert found.to_pylist() == [True, True]
    assert [column.to_pylist() for column in columns] == [["a", "b"], [None, None], [None, None]]


def test_no_more_than_a_half_of_one_layout_is_left_to_the_expression() -> None:
    """Two readers of one block cost more than one."""
    other = '{"user":5}'
    assert fast_json.read_by_template(pa.array([USUAL, other, USUAL, other]), KINDS) is None
    assert fast_json.read_by_template(pa.array([USUAL, other, USUAL]), KINDS) is not None
    assert fast_json.read_by_template(pa.array([], pa.string()), KINDS) is None
    assert fast_json.read_by_template(pa.array([None, ""], pa.string()), KINDS) is None
