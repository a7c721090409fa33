"""Records, file names and errors that hold escape sequences for the terminal of whoever looks at them."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from onlyonce import console as onlyonce_console
from onlyonce import logs
from onlyonce.airflow import log as airflow_log
from onlyonce.airflow.page import app
from onlyonce.core import line_values
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.runs import Report
from onlyonce.local.platform import Login
from onlyonce.settings import ROOT
from tests.security.statements import states

HOSTILE = "a\x1b]0;owned\x07b\x9b2Jc\x7fd\re\x08"
SHOWN = r"a\x1b]0;owned\x07b\x9b2Jc\x7fd\x0de\x08"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
ODD = f"{HOSTILE}\u202egpj\u2028\u2067\udc80"
"""With changes of direction, a line separator and a byte of a file name that is no UTF-8."""
REPORT = Report(ODD, "", {"file": ODD}, {"rows": [{"raw": ODD}]}, [ODD])


def printed(work: object) -> str:
    """Return what a console of ours writes of something."""
    out = io.StringIO()
    console = onlyonce_console.console(file=out)
    work(console)  # type: ignore[operator]
    return out.getvalue()


def logged(form: str) -> str:
    """Return what a job writes to its log of a report, in this form."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as out:
        patch.setenv("ONLYONCE_LOG", form)
        logs.configure(pipeline=ODD)
        logs.tell(REPORT)
    return out.getvalue()


def of_task() -> str:
    """Return what a task of Airflow without a driver writes to its log of a report."""
    log, out = logging.Logger("task"), io.StringIO()
    log.addHandler(logging.StreamHandler(out))
    airflow_log.tell(REPORT, log)
    return out.getvalue()


@states(r"A character that turns the direction of what follows it is printed as `\u202e`.")
def test_no_name_reads_as_another_one() -> None:
    """An override, an embedding and an isolate."""
    found = printed(
        lambda out: onlyonce_console.show_rows([{"file": "gpj\u202eexe.\u202d\u2067x"}], out, title="files")
    )

    assert r"gpj\u202eexe.\u202d\u2067x" in found


@states(
    r"A control character of a record, a file name or an error is printed as `\x1b`, in tables, error lines, logs "
    r"and progress lines."
)
@pytest.mark.parametrize(
    "written",
    [
        lambda: printed(lambda out: onlyonce_console.show_rows([{"raw": ODD, ODD: 1}], out, title=ODD)),
        lambda: printed(lambda out: onlyonce_console.show_report(REPORT, out)),
        lambda: printed(lambda out: onlyonce_console.show_error(Refused(ODD, data=ODD, hint=ODD), out)),
        lambda: printed(lambda out: out.print(ODD, markup=False)),
        lambda: str(Refused(ODD, data=ODD, hint=ODD)),
        lambda: line_values.shown(ODD),
        lambda: logged("lines"),
        lambda: logged("json").replace("u001b", "x1b"),
        lambda: of_task(),
        lambda: app._templates.from_string("{{ odd }}").render(odd=ODD),
        lambda: app._templates.from_string("<input value='{{ odd }}'>").render(odd=ODD),
    ],
    ids=[
        "rows",
        "report",
        "error",
        "line",
        "error's text",
        "reason",
        "log",
        "log in JSON",
        "task's log",
        "page",
        "page's attribute",
    ],
)
def test_no_control_character_reaches_a_terminal(written: Callable[[], str]) -> None:
    """Not one of C0 or C1, except line breaks and tabs; nor what turns the direction, ends a line or can't be
    encoded."""
    found = written()

    assert CONTROLS.findall(found) == []
    assert r"\x1b]0;owned" in found
    found.encode()


@states("In Spark's own log lines, in a driver of one machine, each such character is a question mark.")
def test_sparks_own_log_hides_them() -> None:
    """Log4j replaces the characters of the pattern in its messages and traces; it has no halves of surrogate pairs."""
    found = re.search(
        r"%replace\{%m%n%ex\}\{(\[.*?\])\}\{\?\}", (ROOT / "onlyonce/engine/log4j2.properties").read_text()
    )

    assert found is not None
    assert CONTROLS.findall(re.sub(found[1].replace("\\\\", "\\"), "?", ODD.replace("\udc80", ""))) == []


@states("In JSON it has JSON's own escape, so a script reads the value as it is.")
def test_json_keeps_the_value() -> None:
    """And prints none of its control characters, also if a backslash precedes an x in the value."""
    text = onlyonce_console.as_json([{"raw": ODD, "file": r"\x9b"}])

    assert CONTROLS.findall(text) == []
    assert json.loads(text) == [{"raw": ODD, "file": r"\x9b"}]


@states(
    "An error shows such characters in the same way wherever it goes: on a terminal, in a task's log, on "
    "Airflow's page."
)
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
    assert issubclass(onlyonce_console.Visible, Console)


@states(
    "`onlyonce up` prints the password of Airflow's page once, when it makes it; later it names the file that holds it."
)
def test_the_password_is_printed_once(tmp_path: Path) -> None:
    """A terminal's history and a CI log have it only if the person has just made the platform."""
    file = tmp_path / "passwords"

    assert "s3cret" in str(Login("http://127.0.0.1:1", "admin", "s3cret", file, new=True))
    assert str(Login("http://127.0.0.1:1", "admin", "s3cret", file)).endswith(f"password: in {file}")
