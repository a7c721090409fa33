"""Makes blocks of hostile lines from a seed: every declared type with every source form of the conversion table.

Most values of a block are usual ones, so that the lines reach the readers by Arrow. The others are near an edge of
their type, or of another type. The same seed makes the same block on every machine.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

LINES = 500
"""The lines of a block."""
SEEDS = range(152)
"""These blocks touch each cell of the table; a test checks it."""
SCALARS = (
    "string", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal(4,1)", "decimal(12,2)", "decimal(38,0)", "decimal(38,18)",
    "date", "timestamp", "timestamp_ntz", "binary",
)  # fmt: skip
"""As Spark writes types in JSON."""
NESTED = ("array", "map", "struct")
JSON_FORMS = (
    "missing",
    "null",
    "true or false",
    "whole number",
    "number with a point",
    "number with an exponent",
    "string",
    "array",
    "object",
)
CSV_FORMS = ("empty", "plain", "quoted", "quoted empty")
CELLS = frozenset(
    [("json", kind, form) for kind in (*SCALARS, *NESTED) for form in JSON_FORMS]
    + [("csv", kind, form) for kind in SCALARS for form in CSV_FORMS]
)
INTEGERS = ("byte", "short", "integer", "long")
EDGES = (7, 8, 15, 16, 24, 25, 31, 32, 53, 54, 63, 64)
"""The powers of two near which integers stop to fit."""

Cell = tuple[str, str, str]


class Block(NamedTuple):
    """Lines with the columns that they are read into, and the cells of the table that their values touch."""

    layout: str
    columns: list[tuple[str, Any]]
    lines: list[bytes]
    cells: frozenset[Cell]


class Maker:
    """Makes the values of one block.

    `odd` is how many of them are hostile; `numbers` whether times and decimals are usually numbers of JSON.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.layout = "csv" if seed % 4 == 3 else "json"
        self.odd = self.pick(0.002, 0.02, 0.2, 0.6)
        self.numbers = self.chance.random() < 0.5
        self.space = self.pick("", "", " ")
        self.cells: set[Cell] = set()

    def pick(self, *choices: Any) -> Any:
        """Return one of some choices."""
        return self.chance.choice(choices)

    def often(self, share: float) -> bool:
        """Return true in this share of all calls."""
        return self.chance.random() < share

    def block(self) -> Block:
        """Return a block."""
        names = self.chance.sample(("id", "at", "n", "total", "Total Amount", "ä", "in"), self.chance.randrange(1, 5))
        columns = [(name, self.kind(0)) for name in names]
        make = self.csv if self.layout == "csv" else self.json
        lines = [make(columns) for _ in range(LINES)]
        return Block(self.layout, columns, lines, frozenset(self.cells))

    def kind(self, depth: int) -> Any:
        """Return a type."""
        within = self.pick(*SCALARS, *(NESTED if self.layout == "json" and depth < 3 else ()))
        if within == "array":
            return {"type": "array", "elementType": self.kind(depth + 1), "containsNull": True}
        if within == "map":
            return {"type": "map", "keyType": "string", "valueType": self.kind(depth + 1), "valueContainsNull": True}
        if within == "struct":
            fields = [
                {"name": name, "type": self.kind(depth + 1), "nullable": True, "metadata": {}}
                for name in self.chance.sample("abc", self.chance.randrange(1, 4))
            ]
            return {"type": "struct", "fields": fields}
        return within

    def json(self, columns: list[tuple[str, Any]]) -> bytes:
        """Return a line of JSON: rarely anything but one object."""
        line = self.fields(columns).encode("utf-8", "surrogatepass")
        return self.broken(line) if self.often(self.odd / 4) else line

    def csv(self, columns: list[tuple[str, Any]]) -> bytes:
        """Return a line of CSV: rarely of another number of values."""
        line = ",".join(self.cell(kind) for _, kind in columns).encode("utf-8", "surrogatepass")
        return self.broken(line) if self.often(self.odd / 4) else line

    def broken(self, line: bytes) -> bytes:
        """Return a line with bytes taken out, put in, or another line behind it."""
        at, to = sorted(self.chance.randrange(len(line) + 1) for _ in range(2))
        more = self.pick(
            b"", b" ", b"\t", b"{", b"}", b"[", b"]", b",", b":", b'"', b'""', b"\\", b"\0", b"\xff", b"\xc3\xa4", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc2\xa0", b"\x1f", b"\r",
            b"null", b"NaN", b"//", b"'", b"\x0b", b"\x85", b"0", b"-", b".", b"e", line, b"," + line, b"],[" + line, b"\xf4\x90\x80\x80", b"\xc0\x80", b"[" * 300,
        )  # fmt: skip
        how: Callable[[], bytes] = self.pick(
            lambda: line[:at] + more + line[at:], lambda: line[:at] + line[to:], lambda: line[:at] + more + line[to:], lambda: line[:at], lambda: line + more, lambda: more + line, lambda: more,
        )  # fmt: skip
        return how().replace(b"\n", b"")

    def fields(self, columns: list[tuple[str, Any]], deep: int = 0) -> str:
        """Return an object of JSON with some of the fields, and rarely others, or one twice."""
        found = []
        for name, kind in columns:
            if self.often(0.02 + self.odd / 4):
                self.cells.add((self.layout, _named(kind), "missing"))
            else:
                found.append((name, self.value(kind, deep)))
        if self.often(self.odd / 8):
            found.append(
                (
                    self.pick("more", "", "x y", "\u2028", "A", "a", "id", "at"),
                    self.value(self.pick("string", "double"), deep),
                )
            )
        if found and self.often(self.odd / 16):
            found.append(self.pick(*found))
        if self.often(self.odd):
            self.chance.shuffle(found)
        pairs = [f"{self.gap()}{self.key(name)}{self.gap()}:{self.space}{value}{self.gap()}" for name, value in found]
        return f"{{{','.join(pairs)}}}"

    def gap(self) -> str:
        """Return the white space between two parts of a line: none but rarely."""
        return self.pick(" ", "\t", "\r", "  ") if self.often(self.odd / 8) else ""

    def key(self, name: str) -> str:
        """Return the name of a field, rarely with an escape."""
        if name and self.often(self.odd / 8):
            at = self.chance.randrange(len(name))
            return f'"{json.dumps(name[:at], ensure_ascii=False)[1:-1]}\\u{ord(name[at]):04x}{json.dumps(name[at + 1 :], ensure_ascii=False)[1:-1]}"'
        return json.dumps(name, ensure_ascii=False)

    def value(self, kind: Any, deep: int = 0) -> str:
        """Return a value of JSON for a type."""
        if self.often(self.odd):
            form = self.pick(*JSON_FORMS[1:])
            found = self.of_form(form, kind, deep)
        else:
            found = self.usual(kind, deep)
            form = _form(found)
        self.cells.add((self.layout, _named(kind), form))
        return found

    def of_form(self, form: str, kind: Any, deep: int) -> str:
        """Return a value of a source form, as near to the type as the form allows."""
        if form == "null":
            return "null"
        if form == "true or false":
            return str(self.pick("true", "false", "true", "True", "FALSE"))
        if form == "whole number":
            return self.whole(kind)
        if form == "number with a point":
            return self.fraction(kind)
        if form == "number with an exponent":
            return f"{self.pick(self.whole(kind), self.fraction(kind))}{self.pick('e', 'E')}{self.pick('', '+', '-')}{self.pick(0, 1, 2, 5, 7, 18, 30, 38, 39, 44, 45, 46, 308, 309, 324, 325, 400, '05', '', 999999999999)}"
        if form == "string":
            return self.quoted(self.characters(kind))
        if form == "array":
            return self.usual(
                {
                    "type": "array",
                    "elementType": self.pick(kind, "string", "double")
                    if isinstance(kind, str)
                    else kind.get("elementType", "long"),
                },
                deep,
            )
        if isinstance(kind, dict) and kind["type"] == "struct":
            return self.usual(kind, deep)
        return self.usual(
            {"type": "map", "valueType": kind.get("valueType", "string") if isinstance(kind, dict) else kind}, deep
        )

    def usual(self, kind: Any, deep: int = 0) -> str:
        """Return a value that a producer would write."""
        if isinstance(kind, dict):
            if deep > 3:
                return "null"
            if kind["type"] == "array":
                return (
                    f"[{','.join(self.value(kind['elementType'], deep + 1) for _ in range(self.chance.randrange(3)))}]"
                )
            if kind["type"] == "map":
                keys = self.chance.sample(("a", "b", "Ä", "x y", ""), self.chance.randrange(3))
                pairs = [f"{self.key(key)}:{self.value(kind['valueType'], deep + 1)}" for key in keys]
                return f"{{{','.join(pairs)}}}"
            return self.fields([(one["name"], one["type"]) for one in kind["fields"]], deep + 1)
        if kind == "boolean":
            return str(self.pick("true", "false"))
        if kind in INTEGERS:
            return str(self.chance.randrange(-128, 128))
        if kind in ("float", "double"):
            return self.pick(
                f"{self.chance.randrange(1000)}.{self.chance.randrange(100)}",
                f"{self.chance.randrange(1000)}",
                f"{self.chance.random()}",
            )
        if kind.startswith("decimal"):
            number = self.usual_decimal(kind)
            return number if self.numbers else f'"{number}"'
        if kind == "timestamp" and self.numbers:
            return self.pick(
                "1772366400",
                f"{self.chance.randrange(1 << 31)}",
                f"{self.chance.randrange(1 << 31)}.{self.chance.randrange(10**6)}",
            )
        return json.dumps(self.usual_characters(kind), ensure_ascii=self.often(0.1))

    def usual_decimal(self, kind: str) -> str:
        """Return a number that a decimal holds."""
        scale = int(kind[:-1].split(",")[1])
        places = self.chance.randrange(scale + 1)
        return f"{self.chance.randrange(999)}" + (f".{self.chance.randrange(10**places):0{places}}" if places else "")

    def usual_characters(self, kind: str) -> str:
        """Return the characters of a value that a producer would write as a string."""
        if kind == "date":
            return (
                f"20{self.chance.randrange(10, 99)}-{self.chance.randrange(1, 13):02}-{self.chance.randrange(1, 29):02}"
            )
        if kind.startswith("timestamp"):
            zone = self.pick("Z", "Z", "", "+02:00") if kind == "timestamp" else ""
            clock = f"{self.chance.randrange(24):02}:{self.chance.randrange(60):02}:{self.chance.randrange(60):02}"
            return (
                f"{self.usual_characters('date')}{self.pick('T', ' ')}{clock}{self.pick('', '', '.5', '.123456')}{zone}"
            )
        if kind == "binary":
            return b64encode(self.chance.randbytes(self.chance.randrange(7))).decode()
        return str(
            self.pick(
                "a",
                "order 17",
                "Zoë",
                "x,y",
                "7",
                "007",
                "1e5",
                "🛒",
                "it's",
                "a\\b",
                'say "hi"',
                "",
                "tab\there",
                "\u2028",
            )
        )

    def whole(self, kind: Any) -> str:
        """Return a number without a point or an exponent, near an edge."""
        edge = self.pick(
            0,
            1,
            7,
            *(1 << bits for bits in EDGES),
            10**18,
            10**19,
            10**37,
            10**38,
            10**39,
            253402300799,
            62135596800,
            9223372036,
            1772366400,
            1772366400000,
            9999,
            999,
            99999999999,
        )
        number = edge + self.pick(-1, 0, 0, 1, 2, self.chance.randrange(100))
        written = f"{self.pick('', '', '-')}{number}"
        return (
            self.pick(
                written,
                written,
                written,
                written,
                "-0",
                "0",
                f"0{number}",
                f"+{number}",
                "-",
                f"{number}" * 2,
                "0x1F",
                "1_000",
                "NaN",
                "Infinity",
                "-Infinity",
            )
            if self.often(0.3)
            else written
        )

    def fraction(self, kind: Any) -> str:
        """Return a number with a point, near an edge."""
        if kind == "float" and self.often(0.5):
            # Between two neighbours of 32 bits, where rounding twice goes wrong.
            below = (1 << 23) + self.chance.randrange(1 << 23)
            return (
                f"{self.pick('', '-')}{below}.5{self.pick('', '0' * 20 + '1', '0' * 12 + '1', '')}"
                if self.often(0.5)
                else f"{below // 2}.{self.pick('25', '75', '7499999999999999', '2500000000000001')}"
            )
        digits = self.chance.randrange(self.pick(2, 7, 10, 20, 40))
        tail = "".join(self.pick(*"0123456789") for _ in range(digits)) if digits else self.pick("0", "5", "")
        return self.pick(
            f"{self.whole(kind)}.{tail}",
            f"{self.whole(kind)}.{tail}0000",
            f"{self.pick('', '-')}.{tail}",
            f"0.{tail}",
            f"-0.{tail}",
            f"-0.{'0' * 7}1",
            f"{self.pick(1772366400, -1, 253402300799, -62135596800)}.{tail}",
        )

    def characters(self, kind: Any) -> str:
        """Return the characters of a string, as near to the type as a hostile producer would write them."""
        if self.often(0.15):
            return str(self.pick(
                "", " ", "null", "NULL", "true", "True", "TRUE", "yes", "NaN", "Infinity", "now", "today", "epoch", "12:00", "10:15:00", "T10:15", "20260301", "2026", "45000", "1772366400", "\t12:00",
                "01/02/2026", "3d", "0x1p3", "1,5", "{}", "[]", "\x00", "a\x00b", "\ud800", "\udc00x", "x\ud83d", "\ufeff1", "\u0661", "\uff11", "\u2212" + "1", "\x1f", "\x7f", "\x85", "\r", "é", "e\u0301", "𝟏",
            ))  # fmt: skip
        if isinstance(kind, dict):
            return str(self.pick('{"a":1}', "[1]", "{}", "a"))
        if kind in ("date", "timestamp", "timestamp_ntz"):
            return self.time(kind)
        if kind == "binary":
            written = self.usual_characters(kind)
            return str(
                self.pick(
                    written,
                    written.rstrip("="),
                    written + "=",
                    written.replace("A", "-"),
                    f"{written[:2]} {written[2:]}",
                    "AA==",
                    "AB==",
                    "A",
                    "AAA",
                    "AAA=",
                    "AAB=",
                    "AA=A",
                    "====",
                    "A===",
                    "AA==AA==",
                    "é",
                    "_-_-",
                )
            )
        if kind == "boolean":
            return str(self.pick("true", "false", "True", "FALSE", "tRuE", "1", "0", "t", "yes"))
        number = self.pick(self.whole, self.fraction)(kind)
        return str(
            self.pick(
                number,
                number,
                number,
                f"{number}e{self.pick(0, 1, 5, -5, 40, 400)}",
                f" {number}",
                f"{number} ",
                f"+{number}",
                f"{number}f",
                f"{number}D",
            )
        )

    def time(self, kind: str) -> str:
        """Return a date or a time, each part of it usual or near an edge."""
        odd = self.pick(0.0, 0.1, 0.3)

        def part(usual: str, others: tuple[str, ...]) -> str:
            return self.pick(*others) if self.often(odd) else usual

        year = part(
            f"{self.chance.randrange(1, 10000):04}",
            ("0000", "0001", "0002", "9999", "10000", "999", "99", "1969", "1970", "-0001", "+2026", "２０２６"),
        )
        month = part(f"{self.chance.randrange(1, 13):02}", ("00", "13", "1", "001", "Jan", "02", "12"))
        date = f"{year}{part('-', ('/', '.', '', '–'))}{month}{part('-', ('/', '', ' '))}{part(f'{self.chance.randrange(1, 29):02}', ('00', '29', '30', '31', '32', '1', '1st'))}"
        if kind == "date" and self.often(0.8):
            return f"{part('', (' ', chr(9)))}{date}{part('', (' ', 'T', 'Z', 'T00:00:00', '+00:00'))}"
        if self.often(0.1):
            return date
        clock = part(f"{self.chance.randrange(24):02}", ("24", "23", "00", "9", "25", "-1"))
        if self.often(0.9):
            clock += f":{part(f'{self.chance.randrange(60):02}', ('60', '59', '5', '00'))}"
            if self.often(0.8):
                clock += f":{part(f'{self.chance.randrange(60):02}', ('60', '59', '61', '5'))}"
                if self.often(0.5):
                    clock += f"{part('.', (',', ':'))}{self.chance.randrange(10 ** self.chance.randrange(1, 13))}"
        usual_zone = "" if kind == "timestamp_ntz" else self.pick("Z", "", "+00:00", "-05:00", "+05:30", "+0530", "+05")
        zone = part(
            usual_zone,
            (
                "z",
                "+18:00",
                "-18:00",
                "+18:01",
                "+17:59",
                "+19",
                "+5",
                "+5:30",
                " Z",
                "UTC",
                "BST",
                " +01:00",
                "+01:60",
                "+1",
                "-00:00",
                "[Europe/Berlin]",
                "+05:30:00",
                "+05:",
                "Z+01",
                "-1800",
                "-1801",
                "-18",
            ),
        )
        return f"{date}{part(self.pick('T', ' '), ('t', '_', '  ', '', 'TT'))}{clock}{zone}"

    def quoted(self, characters: str) -> str:
        """Return a string of JSON, by different escapes."""
        if self.often(0.1):
            return f'"{characters}"'
        if self.often(0.1):
            return '"' + "".join(f"\\u{ord(one):04x}" if ord(one) < 0x10000 else one for one in characters) + '"'
        if self.often(0.05):
            escape = self.pick(
                "\\/", "\\x", "\\u12", "\\u00", "\\", "\\n", "\\b", "\\ud83d\\ude00", "\\ud83d", "\\u0000", "\\\\u0000"
            )
            return f'"{characters}{escape}"'
        return json.dumps(characters, ensure_ascii=self.often(0.5))

    def cell(self, kind: str) -> str:
        """Return a value of CSV for a type."""
        form = self.pick(*CSV_FORMS) if self.often(self.odd) else "empty" if self.often(0.05) else "plain"
        characters = self.usual(kind).strip('"') if not self.often(self.odd) else self.characters(kind)
        if form == "plain" and not characters:
            form = "empty"
        if form == "quoted" and not characters:
            form = "quoted empty"
        if self.often(self.odd / 2):
            characters = f"{self.pick('', ' ', '  ', chr(9), chr(160))}{characters}{self.pick('', ' ', '  ')}"
        if form == "plain" and not self.often(self.odd / 2):
            characters = characters.replace(",", ".").replace('"', "'")
        self.cells.add((self.layout, kind, form))
        characters = characters.replace("\n", "").replace("\r", "")
        written = characters.replace('"', '""') if self.often(0.95) else characters
        return {"empty": "", "plain": characters, "quoted": f'"{written}"', "quoted empty": '""'}[form]


def _named(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _form(value: str) -> str:
    first = value[0]
    forms = {'"': "string", "n": "null", "t": "true or false", "f": "true or false", "[": "array", "{": "object"}
    if first in forms:
        return forms[first]
    return "number with an exponent" if "e" in value else "number with a point" if "." in value else "whole number"


def block(seed: int) -> Block:
    """Return the block of a seed."""
    return Maker(seed).block()
