"""The pages of the specification, from its tables (`docs/specification/*.toml`): one state machine a file, and who
writes what. The pages of PROSE are written by hand.

`make spec` writes the pages, which are committed.

The tables are the one list of fail-points: `tests/unit/test_failpoints.py` compares them with the code.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.generate.sql_comments import comments
from docs.generate.table_cells import cell

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "specification"
ORDER = (
    "incarnation",
    "source-batch",
    "receive-batch",
    "output-batch",
    "unit",
    "delta-commit",
    "iceberg-commit",
    "watermark-marker",
    "window",
    "backfill",
    "final-file",
    "outbox-row",
    "write-stream",
    "reprocessing",
    "id-catalog",
    "removal",
    "erasure",
    "compaction",
    "log-retention",
    "target",
    "drop",
    "pull",
    "archive",
    "long-run",
    "notes",
)
"""The state machines, in the order of the pages."""
PROSE = (
    "run",
    "input",
    "unread-input",
    "kafka",
    "receive",
    "lookups",
    "outputs",
    "sinks",
    "backfill-computation",
    "at-least-once",
    "declaration-change",
    "catalog-gc",
    "object-store",
)
"""The pages that are written by hand, in their order."""
OWNERSHIP = "ownership"
"""The table of stored things and hops."""
TABLE = re.compile(r"^CREATE TABLE onlyonce_private\.(\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
GENERATED = "<!-- Written by `make spec` from {name}. Edit that file. -->"


@dataclass(frozen=True)
class Step:
    """A transition. A kill at a point of `before` leaves the old state, one at a point of `after` leaves the next."""

    state: str
    event: str
    guard: str
    transaction: str
    next: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def points(self) -> tuple[str, ...]:
        """Return the fail-points, in the order in which they are passed."""
        return (*self.before, *self.after)


@dataclass(frozen=True)
class Machine:
    """A state machine.

    `rows`: the tables of the commit log that hold its state; `writer` and `reader`: what one must do, and the other may
    rely on.
    """

    name: str
    title: str
    about: str
    states: dict[str, str]
    final: tuple[str, ...]
    steps: tuple[Step, ...]
    invariants: tuple[dict[str, Any], ...]
    rows: tuple[str, ...]
    writer: tuple[str, ...]
    reader: tuple[str, ...]


def machines() -> list[Machine]:
    """Return all state machines, in the order of the pages."""
    return [_machine(name, tomllib.loads((FOLDER / f"{name}.toml").read_text())) for name in ORDER]


def _machine(name: str, data: dict[str, Any]) -> Machine:
    steps = tuple(_step(step) for step in data["steps"])
    lists = {key: tuple(data.get(key, ())) for key in ("final", "invariants", "rows", "writer", "reader")}
    return Machine(name, data["title"], data["about"], data["states"], steps=steps, **lists)


def _step(found: dict[str, Any]) -> Step:
    return Step(**found | {side: tuple(found.get(side, ())) for side in ("before", "after")})


def points(prefix: str = "") -> tuple[str, ...]:
    """Return the fail-points whose names begin so, in the order of the tables.

    The kill cases of the tests are made from them.
    """
    return tuple(
        point for machine in machines() for step in machine.steps for point in step.points if point.startswith(prefix)
    )


def pages() -> dict[str, str]:
    """Return the content of each page, by its file name."""
    known = machines()
    made = {f"{one.name}.md": _page(one) for one in known}
    return {"index.md": _index(known), "fail-points.md": _fail_points(known), f"{OWNERSHIP}.md": _ownership()} | made


def ownership() -> dict[str, Any]:
    """Return who writes what, and the hops of a record."""
    return tomllib.loads((FOLDER / f"{OWNERSHIP}.toml").read_text())


def titles() -> dict[str, str]:
    """Return the title of each page about states or computation, by its name."""
    by_hand = {name: (FOLDER / f"{name}.md").read_text().partition("\n")[0].removeprefix("# ") for name in PROSE}
    return {one.name: one.title for one in machines()} | by_hand


def _ownership() -> str:
    data, named = ownership(), titles()
    parts = [f"# {data['title']}", "", GENERATED.format(name=f"{OWNERSHIP}.toml"), "", data["about"].strip(), ""]
    parts += ["## Stored things", "", "| what | written by | specified in | read by |", "|---|---|---|---|"]
    for one in data["stored"]:
        pages = ", ".join(f"[{named[page]}]({page}.md)" for page in one["pages"])
        parts.append(f"| {cell(one['what'])} | {cell(one['writers'])} | {pages} | {cell(one['readers'])} |")
    parts += ["", "## Hops", "", "A record is known on the receiver's side, so a second delivery has no effect.", ""]
    parts += [
        "| hop | sender | receiver | acknowledgement | known by | position | fail-points |",
        "|---|---|---|---|---|---|---|",
    ]
    for hop in data["hops"]:
        shown = ", ".join(f"`{point}*`" if point.endswith("-") else f"`{point}`" for point in hop["points"])
        names = ("hop", "sender", "receiver", "acknowledgement", "known_by", "position")
        parts.append(f"| {' | '.join(cell(hop[name]) for name in names)} | {shown} |")
    return "\n".join([*parts, ""])


def _page(machine: Machine) -> str:
    parts = [f"# {machine.title}", "", GENERATED.format(name=f"{machine.name}.toml"), "", machine.about.strip(), ""]
    parts += _invariants(machine)
    parts += _list("A writer must", machine.writer) + _list("A reader may rely on", machine.reader)
    parts += ["## States", "", "| state | meaning |", "|---|---|"]
    parts += [f"| {state} | {_cell(meaning)} |" for state, meaning in machine.states.items()]
    parts += [
        "",
        "## Transitions",
        "",
        "| state | event | guard | transaction | next | fail-points |",
        "|---|---|---|---|---|---|",
    ]
    parts += [_row(step) for step in machine.steps]
    parts += (
        ["", "A kill *before* leaves the state as it was. A kill *after* leaves the next state."]
        if any(step.points for step in machine.steps)
        else []
    )
    for table in machine.rows:
        parts += ["", *_schema(table)]
    return "\n".join([*parts, ""])


def _invariants(machine: Machine) -> list[str]:
    """Return each invariant with what holds it, and the tests that fail without it."""
    parts = ["## Invariants", ""] if machine.invariants else []
    for one in machine.invariants:
        parts += [f"- **{one['id']}** {one['text']}", f"    - held by {_listed(one['held_by'])}"]
        parts.append(f"    - tested by {_listed(one['tests'])}")
    return [*parts, ""] if parts else []


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _list(title: str, entries: Any) -> list[str]:
    return [f"## {title}", "", *(f"- {entry}" for entry in entries), ""] if entries else []


def _row(step: Step) -> str:
    points = [
        f"{when}: {', '.join(f'`{name}`' for name in names)}"
        for when, names in (("before", step.before), ("after", step.after))
        if names
    ]
    cells = (step.state, step.event, step.guard, f"`{step.transaction}`", step.next, "; ".join(points))
    return "| " + " | ".join(_cell(one) for one in cells) + " |"


def _schema(table: str) -> Iterator[str]:
    """Yield a table's columns and constraints, as the migration has them."""
    columns, about = tables()[table], comments("".join(_migrations()), "onlyonce_private")
    yield from (
        f"## Rows of `{table}`",
        "",
        about.get(table, ""),
        "",
        "| column | definition | meaning |",
        "|---|---|---|",
    )
    for name, definition in columns:
        yield f"| `{name}` | {_cell(definition)} | {_cell(about.get(f'{table}.{name}', ''))} |"


def tables() -> dict[str, list[tuple[str, str]]]:
    """Return the tables of the commit log, each with its columns and constraints and their definitions."""
    return {
        name: [_defined(part) for part in _parts(body)] for sql in _migrations() for name, body in TABLE.findall(sql)
    }


def _migrations() -> list[str]:
    return [(ROOT / "sql" / "migrations" / name).read_text() for name in ("authority.sql", "platform.sql")]


def _parts(body: str) -> Iterator[str]:
    """Cut a table's body at the commas between columns, without the comments."""
    text, depth, begins = re.sub(r"--[^\n]*", "", body), 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield " ".join(text[begins:at].split())
            begins = at + 1
    yield " ".join(text[begins:].split())


def _defined(part: str) -> tuple[str, str]:
    name, _, definition = part.removeprefix("CONSTRAINT ").partition(" ")
    return name, definition


def _index(known: list[Machine]) -> str:
    parts = [(FOLDER / "index.txt").read_text().rstrip(), "", "## State machines", "", "| page | holds |", "|---|---|"]
    parts += [f"| [{one.title}]({one.name}.md) | {_cell(_first(one.about))} |" for one in known]
    parts += ["", "## Computation", "", "| page | holds |", "|---|---|"]
    parts += [f"| [{titles()[name]}]({name}.md) | {_cell(_lead(name))} |" for name in PROSE]
    parts += [
        "",
        f"[{ownership()['title']}]({OWNERSHIP}.md) has each stored thing with its writers and readers.",
        "",
        "## Invariants",
        "",
        *(f"- **{one['id']}** ([{of.title}]({of.name}.md)) {one['text']}" for of in known for one in of.invariants),
    ]
    return "\n".join([*parts, ""])


def _lead(name: str) -> str:
    """Return the first sentence of a page that is written by hand."""
    return _first((FOLDER / f"{name}.md").read_text().split("\n\n")[1])


def _first(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".") + "."


def _fail_points(known: list[Machine]) -> str:
    rows = sorted(
        (point, of, left)
        for of in known
        for step in of.steps
        for names, left in ((step.before, step.state), (step.after, step.next))
        for point in names
    )
    head = [
        "# Fail-points",
        "",
        GENERATED.format(name="the tables"),
        "",
        f"The {len(rows)} named moments at which tests kill real processes, and the state that a kill leaves.",
        "",
    ]
    return "\n".join(
        [
            *head,
            "| fail-point | state machine | a kill leaves |",
            "|---|---|---|",
            *(f"| `{point}` | [{of.title}]({of.name}.md) | {left} |" for point, of, left in rows),
            "",
        ]
    )


def _cell(text: str) -> str:
    return cell(" ".join(text.split()))


if __name__ == "__main__":
    for name, content in pages().items():
        (FOLDER / name).write_text(content)
