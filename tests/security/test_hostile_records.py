"""Records, file names and errors that hold escape sequences for the terminal of whoever looks at them."""

from __future__ import annotations

import io
import json
import pickle
import re
from pathlib import Path

import pytest
from rich.console import Console

from onlyonce import tables
from onlyonce.local.platform import Login
from onlyonce.model.errors import OnlyonceError, Refused
from onlyonce.model.report import Report
from onlyonce.settings import ROOT
from tests.security.statements import states

HOSTILE = "a\x1b]0;owned\x07b\x9b2Jc\x7fd\re\x08"
SHOWN = r"a\x1b]0;owned\x07b\x9b2Jc\x7fd\x0de\x08"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printed(work: object) -> str:
    """Return what a console of ours writes of something."""
    out = io.StringIO()
    console = tables.console(file=out)
    work(console)  # type: ignore[operator]
    return out.getvalue()


@states(r"A character that turns the direction of what follows it is printed as `\u202e`.")
def test_no_name_reads_as_another_one() -> None:
    """An override, an embedding and an isolate."""
    found = printed(lambda out: tables.show_rows([{"file": "gpj\u202eexe.\u202d\u2067x"}], out, title="files"))

    assert r"gpj\u202eexe.\u202d\u2067x" in found


@states(r"A control character of a record, a file name or an error is printed as `\x1b`, in tables, error lines, logs and progress lines.")
@pytest.mark.parametrize(
    "work",
    [
        lambda out: tables.show_rows([{"raw": HOSTILE, HOSTILE: 1}], out, title=HOSTILE),
        lambda out: tables.show_report(Report(HOSTILE, "", {"file": HOSTILE}, {}, [HOSTILE]), out),
        lambda out: tables.show_error(Refused(HOSTILE, data=HOSTILE, hint=HOSTILE), out),
        lambda out: out.print(HOSTILE, markup=False),
    ],
    ids=["rows", "report", "error", "line"],
)
def test_no_control_character_reaches_a_terminal(work: object) -> None:
    """Not one of C0 or C1, except line breaks and tabs."""
    found = printed(work)

    assert CONTROLS.findall(found) == []
    assert r"\x1b]0;owned" in found


@states("In JSON it has JSON's own escape, so a script reads the value as it is.")
def test_json_keeps_the_value() -> None:
    """And prints none of its control characters, also if a backslash precedes an x in the value."""
    text = tables.as_json([{"raw": HOSTILE, "file": r"\x9b"}])

    assert CONTROLS.findall(text) == []
    assert json.loads(text) == [{"raw": HOSTILE, "file": r"\x9b"}]


@states("An error shows them wherever it goes: on a terminal, in a task's log, on Airflow's page.")
def test_an_error_holds_no_control_character() -> None:
    """Also one that has come from a worker of Spark."""
    error = Refused(f"{HOSTILE}\nsecond line", data=HOSTILE, hint=HOSTILE)

    for one in (error, pickle.loads(pickle.dumps(error))):
        assert (one.what, one.data, one.hint) == (f"{SHOWN}\nsecond line", SHOWN, SHOWN)
    assert CONTROLS.findall(str(OnlyonceError(HOSTILE))) == []


@states("Every command prints through one console.")
def test_there_is_one_console() -> None:
    """A module that makes its own console would send control characters to the terminal."""
    made = [str(path) for path in (ROOT / "onlyonce").rglob("*.py") if re.search(r"\bConsole\(", path.read_text())]

    assert made == []
    assert issubclass(tables.Visible, Console)


@states("`onlyonce up` prints the password of Airflow's page once, when it makes it; later it names the file that holds it.")
def test_the_password_is_printed_once(tmp_path: Path) -> None:
    """A terminal's history and a CI log have it only if the person has just made the platform."""
    file = tmp_path / "passwords"

    assert "s3cret" in str(Login("http://127.0.0.1:1", "admin", "s3cret", file, new=True))
    assert str(Login("http://127.0.0.1:1", "admin", "s3cret", file)).endswith(f"password: in {file}")
