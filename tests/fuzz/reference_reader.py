"""A plain, slow reader of one line of JSON or CSV, written from the page of values alone (`docs/reference/values.md`),
without a checkout.

So no agreement with the product comes from a shared mistake. A comment beginning with *Clarified* marks what the page
left open then; the page says it now.
"""

import base64
import re
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple


class Result(NamedTuple):
    """What a line means: its values, or the reason why it has none."""

    values: dict[str, Any] | None
    reason: str | None
    more: bool


class Invalid(Exception):
    """The line, or a value in it, is not one that the page takes."""


# ---------------------------------------------------------------- JSON: from bytes to nodes


SHORT = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
"""The characters that have a short escape, which is used."""


class Node(NamedTuple):
    """A JSON value. kind is string, number, boolean, null, array or object.

    value is the decoded string, the number as written, True or False, None, a list of nodes, or a dict of nodes.
    first and last are its place in the list of tokens (last is the token behind it).
    """

    kind: str
    value: Any
    first: int
    last: int


NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
WHITE_SPACE = " \t\n\r"
TOKEN = re.compile(rf"[{{}}\[\],:]|true|false|null|{NUMBER}|{STRING}")
ONE_NUMBER = re.compile(NUMBER)
DEEPEST = 1000
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def utf8(line: bytes) -> str:
    """The characters of a line."""
    try:
        return line.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise Invalid("the line is not UTF-8") from None


def tokens_of(text: str) -> list[str]:
    """The tokens of a JSON text, as they are written, without the white space between them."""
    tokens = []
    place = behind_space(text, 0)
    while place < len(text):
        found = TOKEN.match(text, place)
        if found is None:
            raise Invalid(f"not JSON at character {place}")
        tokens.append(found.group())
        place = behind_space(text, found.end())
    return tokens


def behind_space(text: str, place: int) -> int:
    """The place of the next character that is no white space."""
    while place < len(text) and text[place] in WHITE_SPACE:
        place += 1
    return place


def check_depth(tokens: list[str]) -> None:
    """Clarified: a line of more than 1,000 levels is invalid."""
    depth = 0
    for token in tokens:
        if token in ("{", "["):
            depth += 1
            if depth > DEEPEST:
                raise Invalid("more than 1,000 levels")
        elif token in ("}", "]"):
            depth -= 1


def decoded(token: str) -> str:
    """The string that a JSON string token stands for."""
    written = token[1:-1]
    out = []
    place = 0
    while place < len(written):
        if written[place] != "\\":
            out.append(written[place])
            place += 1
        elif written[place + 1] != "u":
            out.append(ESCAPES[written[place + 1]])
            place += 2
        else:
            unit = int(written[place + 2 : place + 6], 16)
            place += 6
            if 0xDC00 <= unit <= 0xDFFF:
                raise Invalid("half a surrogate pair")
            if 0xD800 <= unit <= 0xDBFF:
                if written[place : place + 2] != "\\u":
                    raise Invalid("half a surrogate pair")
                second = int(written[place + 2 : place + 6], 16)
                place += 6
                if not 0xDC00 <= second <= 0xDFFF:
                    raise Invalid("half a surrogate pair")
                unit = 0x10000 + (unit - 0xD800) * 0x400 + (second - 0xDC00)
            out.append(chr(unit))
    if "\0" in out:
        raise Invalid("the NUL character")
    return "".join(out)


def escaped(text: str) -> str:
    """Clarified: in the strings of an object or array that is a string, those characters are escaped for which JSON
    demands it."""
    out = []
    for character in text:
        if character in '"\\':
            out.append("\\" + character)
        elif character in SHORT:
            out.append(SHORT[character])
        elif character < " ":
            out.append(f"\\u{ord(character):04x}")
        else:
            out.append(character)
    return '"' + "".join(out) + '"'


def parse(tokens: list[str], at: int) -> Node:
    """The JSON value that begins at a token."""
    token = tokens[at] if at < len(tokens) else "the end of the line"
    if token == "{":
        return parse_object(tokens, at)
    if token == "[":
        return parse_array(tokens, at)
    if token in ("true", "false"):
        return Node("boolean", token == "true", at, at + 1)
    if token == "null":
        return Node("null", None, at, at + 1)
    if token[0] == '"':
        return Node("string", decoded(token), at, at + 1)
    if token[0] in "-0123456789":
        return Node("number", token, at, at + 1)
    raise Invalid(f"a value was due, not {token}")


def parse_object(tokens: list[str], at: int) -> Node:
    """The JSON object that begins at a token."""
    fields: dict[str, Node] = {}
    place = at + 1
    if tokens[place : place + 1] == ["}"]:
        return Node("object", fields, at, place + 1)
    while True:
        if place >= len(tokens) or tokens[place][0] != '"':
            raise Invalid("the name of a field was due")
        name = decoded(tokens[place])
        if name in fields:
            raise Invalid(f"the field {name!r} is there twice")
        if tokens[place + 1 : place + 2] != [":"]:
            raise Invalid("a colon was due")
        fields[name] = parse(tokens, place + 2)
        place = fields[name].last
        if tokens[place : place + 1] == ["}"]:
            return Node("object", fields, at, place + 1)
        if tokens[place : place + 1] != [","]:
            raise Invalid("a comma or the end of the object was due")
        place += 1


def parse_array(tokens: list[str], at: int) -> Node:
    """The JSON array that begins at a token."""
    elements: list[Node] = []
    place = at + 1
    if tokens[place : place + 1] == ["]"]:
        return Node("array", elements, at, place + 1)
    while True:
        elements.append(parse(tokens, place))
        place = elements[-1].last
        if tokens[place : place + 1] == ["]"]:
            return Node("array", elements, at, place + 1)
        if tokens[place : place + 1] != [","]:
            raise Invalid("a comma or the end of the array was due")
        place += 1


# ---------------------------------------------------------------- CSV: from bytes to cells


class Cell(NamedTuple):
    """A value of a CSV record, without the quotes around it."""

    text: str
    quoted: bool


def cells_of(text: str) -> list[Cell]:
    """The values of one CSV record by RFC 4180."""
    if "\0" in text:
        raise Invalid("the NUL character")
    if text.strip(" ") == "":
        raise Invalid("nothing but spaces")  # Clarified: also for one column.
    cells = []
    place = 0
    while True:
        out = []
        quoted = text[place : place + 1] == '"'
        if quoted:
            place += 1
            while True:
                if place >= len(text):
                    raise Invalid("a quote is not closed")
                if text[place : place + 2] == '""':
                    out.append('"')
                    place += 2
                elif text[place] == '"':
                    place += 1
                    break
                else:
                    out.append(text[place])
                    place += 1
            if place < len(text) and text[place] != ",":
                raise Invalid("something stands behind a closing quote")
        else:
            while place < len(text) and text[place] != ",":
                if text[place] in '"\r\n':
                    raise Invalid(f"{text[place]!r} stands in a value without quotes")
                out.append(text[place])
                place += 1
        cells.append(Cell("".join(out), quoted))
        if place == len(text):
            return cells
        place += 1


# ---------------------------------------------------------------- numbers, exactly


class Number(NamedTuple):
    """A number as it is written: digits times ten to the power of exponent. Zero has no digits."""

    negative: bool
    digits: str
    exponent: int
    plain: bool  # written without a point and without an exponent


def small_or_huge(digits: str) -> int:
    """The whole number of some digits; of more than 18 digits 10**18, which is beyond every type as an exponent."""
    digits = digits.lstrip("0")
    return 10**18 if len(digits) > 18 else int(digits or "0")


def number_of(text: str) -> Number:
    """The number that a text is, by the grammar of RFC 8259."""
    if ONE_NUMBER.fullmatch(text) is None:
        raise Invalid("not a number")
    negative = text[0] == "-"
    mantissa, _, power = text.removeprefix("-").replace("E", "e").partition("e")
    before, _, behind = mantissa.partition(".")
    exponent = small_or_huge(power.lstrip("+-"))
    if power.startswith("-"):
        exponent = -exponent
    exponent -= len(behind)
    digits = (before + behind).lstrip("0")
    while digits.endswith("0"):
        digits = digits[:-1]
        exponent += 1
    if digits == "":
        exponent = 0
    return Number(negative, digits, exponent, "." not in text and "e" not in text.lower())


def exact(number: Number) -> Fraction:
    """The exact value, up to one thing: no type can tell a number from another that is
    beyond 10**2000 too, or from another of the same sign that is nearer to zero than 10**-2000 too."""
    if number.digits == "":
        return Fraction(0)
    order = len(number.digits) + number.exponent  # 10**(order - 1) <= size < 10**order
    if order > 2000:
        size = Fraction(10) ** 2000
    elif order < -2000:
        size = Fraction(1, 10**2000)
    else:
        whole = 0
        for start in range(0, len(number.digits), 1000):  # Python's int() takes no more than 4300 digits at once
            part = number.digits[start : start + 1000]
            whole = whole * 10 ** len(part) + int(part)
        if number.exponent >= 0:
            size = Fraction(whole * 10**number.exponent)
        else:
            size = Fraction(whole, 10**-number.exponent)
    return -size if number.negative else size


INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def integer_of(text: str, kind: str) -> int:
    """A number without a point or an exponent, in the range of the type."""
    number = number_of(text)
    if not number.plain:
        raise Invalid("a whole number has no point and no exponent")
    value = exact(number)
    half = 2 ** (INTEGER_BITS[kind] - 1)
    if not -half <= value < half:
        raise Invalid("out of range")
    return int(value)


# The digits of the mantissa in base 2, the exponents of the smallest normal and of the largest number.
FLOAT_SHAPE = {"float": (24, -126, 127), "double": (53, -1022, 1023)}


def float_of(text: str, kind: str) -> float:
    """The nearest value of a number, ties to even, rounded once."""
    bits, lowest, highest = FLOAT_SHAPE[kind]
    number = number_of(text)
    size = abs(exact(number))
    if number.plain and size > 2**bits:
        raise Invalid(f"a number without a point and an exponent is beyond 2^{bits}")
    if size == 0:
        return -0.0 if number.negative else 0.0
    power = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** power > size:
        power -= 1
    assert Fraction(2) ** power <= size < Fraction(2) ** (power + 1)
    unit = Fraction(2) ** (max(power, lowest) - (bits - 1))  # the distance of two neighbours
    nearest = round(size / unit) * unit  # round() of a Fraction is exact, and goes to even at a tie
    if nearest >= Fraction(2) ** (highest + 1):
        raise Invalid("too large")
    value = float(nearest)
    assert Fraction(value) == nearest
    return -value if number.negative else value


def decimal_of(text: str, precision: int, scale: int) -> Decimal:
    """A number that has no more digits before and behind the point than the type."""
    number = number_of(text)
    if number.digits == "":
        return Decimal((0, (0,), -scale))
    if number.exponent < -scale:
        raise Invalid(f"more than {scale} digits behind the point")
    if len(number.digits) + number.exponent > precision - scale:
        raise Invalid(f"more than {precision - scale} digits before the point")
    digits = number.digits + "0" * (number.exponent + scale)
    return Decimal((int(number.negative), tuple(int(digit) for digit in digits), -scale))


# ---------------------------------------------------------------- dates and times

DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?")  # Clarified: a point, and no comma.
OFFSET = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?")  # Clarified: also without a colon.
EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)
FIRST = (datetime.min - EPOCH) // MICROSECOND
LAST = (datetime.max - EPOCH) // MICROSECOND


def date_of(text: str) -> date:
    """YYYY-MM-DD, of the years 1 to 9999."""
    found = DATE.fullmatch(text)
    if found is None:
        raise Invalid("not a date YYYY-MM-DD")
    try:
        return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        raise Invalid("no such day") from None


def moment(microseconds: int) -> datetime:
    """The time so many microseconds after 1970 began, without a zone."""
    if not FIRST <= microseconds <= LAST:
        raise Invalid("outside the years 1 to 9999")
    return EPOCH + timedelta(microseconds=microseconds)


def time_of(text: str, with_zone: bool) -> datetime:
    """A date, or a date and a time of day, and behind a time of day a zone if the type has one. In UTC."""
    day = date_of(text[:10])
    microseconds = (day - EPOCH.date()).days * 24 * 60 * 60 * 1_000_000
    rest = text[10:]
    if rest == "":
        return moment(microseconds)
    if rest[0] not in "T ":
        raise Invalid("T or a space was due behind the date")
    found = TIME.match(rest, 1)
    if found is None:
        raise Invalid("not a time of day")
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or "0")
    if hour > 23 or minute > 59 or second > 59:
        raise Invalid("no such time of day")
    microseconds += ((hour * 60 + minute) * 60 + second) * 1_000_000
    microseconds += int(((found[4] or "") + "000000")[:6])
    zone = rest[found.end() :]
    if zone == "":
        return moment(microseconds)
    if not with_zone:
        raise Invalid("something stands behind the time, which has no zone")
    if zone == "Z":
        return moment(microseconds)
    offset = OFFSET.fullmatch(zone)
    if offset is None:
        raise Invalid("not Z and not an offset")
    hours, minutes = int(offset[2]), int(offset[3] or "0")
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        raise Invalid("an offset of more than 18 hours, or no such offset")
    shift = (hours * 60 + minutes) * 60 * 1_000_000
    return moment(microseconds - shift if offset[1] == "+" else microseconds + shift)


def seconds_of(text: str) -> datetime:
    """The time so many seconds after 1970 began; what is finer than a microsecond is cut towards the past."""
    microseconds = exact(number_of(text)) * 1_000_000
    return moment(microseconds.numerator // microseconds.denominator)


# ---------------------------------------------------------------- binary

BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def base64_of(text: str) -> bytes:
    """The bytes of a string in Base64, with its padding."""
    if BASE64.fullmatch(text) is None:
        raise Invalid("not Base64")
    return base64.b64decode(text)


# ---------------------------------------------------------------- the types

DECIMAL = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")


def precision_and_scale(kind: str) -> tuple[int, int] | None:
    """The two numbers of a decimal type; None for another type."""
    found = DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


class More:
    """Whether a field was seen that is not declared."""

    seen = False


def json_value(node: Node, kind: Any, tokens: list[str], more: More) -> Any:
    """The value of a JSON node for a declared type."""
    if node.kind == "null":
        return None

    if isinstance(kind, dict):
        if kind["type"] == "array":
            if node.kind != "array":
                raise Invalid("not an array")
            elements = []
            for element in node.value:
                elements.append(json_value(element, kind["elementType"], tokens, more))
            return elements
        if kind["type"] == "map":
            if node.kind != "object":
                raise Invalid("not an object")
            values = {}
            for name, value in node.value.items():
                values[name] = json_value(value, kind["valueType"], tokens, more)
            return values
        if kind["type"] == "struct":
            if node.kind != "object":
                raise Invalid("not an object")
            values = {}
            for field in kind["fields"]:
                name = field["name"]
                values[name] = json_value(node.value[name], field["type"], tokens, more) if name in node.value else None
            for name in node.value:
                if name not in values:
                    more.seen = True
            return values
        raise ValueError(f"unknown type {kind!r}")

    if kind == "string":
        if node.kind == "string":
            return node.value
        return "".join(
            escaped(decoded(token)) if token[0] == '"' else token for token in tokens[node.first : node.last]
        )
    if kind == "boolean":
        if node.kind != "boolean":
            raise Invalid("not true or false")
        return node.value
    if kind in INTEGER_BITS:
        if node.kind != "number":
            raise Invalid("not a number")
        return integer_of(node.value, kind)
    if kind in FLOAT_SHAPE:
        if node.kind != "number":
            raise Invalid("not a number")
        return float_of(node.value, kind)
    if digits := precision_and_scale(kind):
        if node.kind not in ("number", "string"):
            raise Invalid("not a number")
        return decimal_of(node.value, *digits)
    if kind == "timestamp" and node.kind == "number":
        return seconds_of(node.value).replace(tzinfo=UTC)
    if kind in ("date", "timestamp", "timestamp_ntz", "binary"):
        if node.kind != "string":
            raise Invalid("not a string")
        if kind == "date":
            return date_of(node.value)
        if kind == "timestamp":
            return time_of(node.value, with_zone=True).replace(tzinfo=UTC)
        if kind == "timestamp_ntz":
            return time_of(node.value, with_zone=False)
        return base64_of(node.value)
    raise ValueError(f"unknown type {kind!r}")


def csv_value(cell: Cell, kind: Any) -> Any:
    """The value of a CSV cell for a declared type."""
    if kind == "string":
        return None if cell.text == "" and not cell.quoted else cell.text
    if kind == "binary":  # Clarified: an empty value and spaces are those of a string.
        return None if cell.text == "" and not cell.quoted else cell.text.encode("utf-8")

    text = cell.text.strip(" ")
    if text == "":
        return None
    if isinstance(kind, dict):
        if kind["type"] not in ("array", "map", "struct"):
            raise ValueError(f"unknown type {kind!r}")
        raise Invalid("CSV has no arrays and no objects")
    if kind == "boolean":
        if text.isascii() and text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise Invalid("not true or false")
    if kind in INTEGER_BITS:
        return integer_of(text, kind)
    if kind in FLOAT_SHAPE:
        return float_of(text, kind)
    if digits := precision_and_scale(kind):
        return decimal_of(text, *digits)
    if kind == "date":
        return date_of(text)
    if kind == "timestamp":
        return time_of(text, with_zone=True).replace(tzinfo=UTC)
    if kind == "timestamp_ntz":
        return time_of(text, with_zone=False)
    raise ValueError(f"unknown type {kind!r}")


# ---------------------------------------------------------------- a line


def read_json(line: bytes, columns: list[tuple[str, Any]], known: set[str] | None = None) -> Result:
    """What a line of JSON means. The fields named in known are no columns, but do not count as undeclared."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 10 * len(line))  # a line may nest as deeply as it likes
    try:
        tokens = tokens_of(utf8(line))
        check_depth(tokens)
        top = parse(tokens, 0)
        if top.last != len(tokens):
            raise Invalid("something stands behind the value")
        if top.kind != "object":
            raise Invalid("the line is not an object")
        more = More()
        values: dict[str, Any] = {}
        for name, kind in columns:
            values[name] = None
            if name in top.value:
                node = top.value[name]
                try:
                    values[name] = json_value(node, kind, tokens, more)
                except Invalid as wrong:
                    shown = "".join(tokens[node.first : node.last])
                    raise Invalid(f"column {name!r}, value {shown}: {wrong}") from None
        for name in top.value:
            if name not in values and name not in (known or set()):
                more.seen = True
        return Result(values, None, more.seen)
    except Invalid as wrong:
        return Result(None, str(wrong), False)
    finally:
        sys.setrecursionlimit(limit)


def read_csv(line: bytes, columns: list[tuple[str, Any]]) -> Result:
    """What a line of CSV means."""
    try:
        cells = cells_of(utf8(line))
        if len(cells) != len(columns):
            raise Invalid(f"{len(cells)} values for {len(columns)} columns")
        values: dict[str, Any] = {}
        for cell, (name, kind) in zip(cells, columns, strict=True):
            try:
                values[name] = csv_value(cell, kind)
            except Invalid as wrong:
                raise Invalid(f"column {name!r}, value {cell.text!r}: {wrong}") from None
        return Result(values, None, False)
    except Invalid as wrong:
        return Result(None, str(wrong), False)
