"""A CSV file of any country: `init --from` takes it, or names what differs and a command after which it does."""

from __future__ import annotations

import re
import subprocess
from itertools import cycle, product
from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.scaffold import sample as scaffold_sample

ROWS = [
    ["Ride ID", "Straße", "Start Time", "Fare €"],
    *([f"R{n}", f'Große, "{n}"; x|y\tz', f"2026-03-01 10:{n:02}:00", f"{n},50"] for n in range(12)),
]
ENCODINGS = {
    "utf-8": "",
    "utf-8-sig": "",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16-LE",
    "utf-16-be": "UTF-16-BE",
    "cp1252": "",
}
ENDS = {"\r\n": "", "\n": "", "\r": "carriage returns alone"}
FORMS = [
    (*form, end, named)
    for form, (end, named) in zip(product(ENCODINGS, ",;\t|"), cycle(product(ENDS, (False, True))), strict=False)
] + [("utf-8", ",", "\r\n", False), ("utf-8-sig", ",", "\r\n", False), ("utf-8-sig", ";", "\r\n", False)]


def written(separator: str, end: str, named: bool) -> str:
    """The rows with every value in quotes that has a special character, as Excel writes them."""
    special = {separator, '"', "\r", "\n"}
    lines = [
        separator.join('"' + cell.replace('"', '""') + '"' if special & {*cell} else cell for cell in row)
        for row in ROWS
    ]
    return end.join([*([f"sep={separator}"] if named else []), *lines, ""])


@pytest.mark.parametrize(("encoding", "separator", "end", "named"), FORMS)
def test_a_file_of_any_country_is_taken_or_converted_as_said(
    tmp_path: Path, encoding: str, separator: str, end: str, named: bool
) -> None:
    """The reasons are all true, and the command of the message leads to the declaration of the plain file."""
    plain, path = tmp_path / "plain.csv", tmp_path / "it's a.csv"
    plain.write_text(written(",", "\n", named=False))
    path.write_bytes(written(separator, end, named).encode(encoding))
    wanted = scaffold_sample.read_sample(plain)
    reasons = [ENCODINGS[encoding], ENDS[end], f"names the separator {separator!r}" if named else ""]
    if encoding == "cp1252" and any(reasons):  # it is converted anyway
        reasons[0] = "not UTF-8; as windows-1252"

    if not any(reasons):
        found = scaffold_sample.read_sample(path)
    else:
        with pytest.raises(Refused) as refused:
            scaffold_sample.read_sample(path)
        assert all(reason in refused.value.what for reason in reasons), refused.value.what
        command = "python3 -c " + str(refused.value.hint).partition("python3 -c ")[2]
        subprocess.run(command, shell=True, check=True)
        found = scaffold_sample.read_sample(tmp_path / "it's a.utf8.csv")

    assert (found.columns, found.aliases, found.rows) == (wanted.columns, wanted.aliases, wanted.rows)
    assert found.columns == {"ride_id": "string", "strasse": "string", "start_time": "timestamp", "fare": "string"}
    assert scaffold_sample.decimal_commas(found) == ["fare"]
    assert found.header
    assert found.delimiter == ("," if any(reasons) else separator)
    assert found.encoding == ("windows-1252" if encoding == "cp1252" and not any(reasons) else "utf-8")


@pytest.mark.parametrize(("content", "what"), [
    (b"id,name\n1,Stra\xdfe\n2,caf\xc3\xa9\n", "a.csv:2 is not UTF-8, and other lines of the file are"),
    (b"id,name\n1,Stra\xdfe\n2,\x81\n", "it is not UTF-8; as windows-1252"),
])  # fmt: skip
def test_bytes_of_no_single_encoding_are_refused(tmp_path: Path, content: bytes, what: str) -> None:
    """A mixture would have wrong letters, and a byte that windows-1252 does not define belongs to another encoding."""
    (tmp_path / "a.csv").write_bytes(content)

    with pytest.raises(Refused, match=re.escape(what)):
        scaffold_sample.read_sample(tmp_path / "a.csv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252"])
def test_json_in_another_encoding_is_converted_as_said(tmp_path: Path, encoding: str) -> None:
    """Its lines stay as they are."""
    text = "".join(f'{{"Straße": "Große {n}", "at": "2026-03-01T10:{n:02}:00Z"}}\r\n' for n in range(9))
    (tmp_path / "a.jsonl").write_bytes(text.encode(encoding))

    with pytest.raises(Refused) as refused:
        scaffold_sample.read_sample(tmp_path / "a.jsonl")
    subprocess.run("python3 -c " + str(refused.value.hint).partition("python3 -c ")[2], shell=True, check=True)

    assert (tmp_path / "a.utf8.jsonl").read_bytes() == text.encode()
    assert scaffold_sample.read_sample(tmp_path / "a.utf8.jsonl").aliases == {"strasse": "Straße"}
