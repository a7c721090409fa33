"""Compare two declarations of a query and decide what each change needs: nothing, a backfill, a new incarnation, a
name.

Pure. The log keeps the parts of a declaration's identity (`onlyonce/api/identity.py`) once for each hash.
`CONSEQUENCES` names what each kind of change needs; `tests/spark/outputs/test_changes.py` tries each on Spark.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from onlyonce.core.durations import stored_in_words
from onlyonce.core.errors import Refused


def same_code(one: str, other: str) -> bool:
    """Return whether two sources of a function differ in layout, comments and docstrings at most."""
    return one == other or _plain(one) == _plain(other)


def _plain(source: str) -> str:
    try:
        tree = ast.parse(source.strip())
    except SyntaxError:  # a method or lambda, cut out of its line
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


# What each kind of change needs, and why.


class Need(StrEnum):
    """The step that a change needs before all its results come from the new declaration."""

    NOTHING = "nothing"
    BACKFILL = "a backfill"
    INCARNATION = "a new incarnation"
    BOTH = "a new incarnation, a backfill"
    NAME = "another name"

    @property
    def stops(self) -> bool:
        """Return whether a run under the old incarnation would write rows of two declarations to one table, or fail."""
        return self in (Need.INCARNATION, Need.BOTH, Need.NAME)


CONSEQUENCES: dict[str, tuple[Need, str]] = {
    "column added": (Need.NOTHING, "`events` gets the column at the next run; records from before have null there"),
    "column removed": (Need.NOTHING, "`events` keeps the column, null from now on; its field counts as unknown"),
    "column type": (Need.NAME, "`events` holds one type for a column: give the new one another name"),
    "record_id": (Need.NOTHING, "a re-delivery of what was kept before the change is not recognised any more"),
    "record_id or place": (
        Need.NAME,
        "what is kept is known one way, what comes would be known another: declare a pipeline of another name",
    ),
    "event_time": (
        Need.NAME,
        "the max event time, frontiers and closed windows are of the old column: declare a pipeline of another name",
    ),
    "max_ahead": (Need.NOTHING, "what was invalid by the old bound stays so until: onlyonce reprocess"),
    "max_record_bytes": (
        Need.NOTHING,
        "from the next batch on; what was invalid by the old bound is kept as its beginning only",
    ),
    "inbox": (Need.NOTHING, "the next run asks whether its files were moved, or are others: onlyonce inbox"),
    "max_files_a_batch": (Need.NOTHING, "files that are registered stay in the batch that they were given"),
    "format": (
        Need.NAME,
        "files that are registered were counted by the old one: declare a pipeline of another name, with an inbox "
        "of its own",
    ),
    "topic": (Need.NAME, "offsets of one topic say nothing of another source: declare a pipeline of another name"),
    "beside": (Need.NOTHING, "from the next batch on; a record id that it gives is another id from then on"),
    "isolation": (Need.NOTHING, "from the next batch on; what was passed over is not looked at again"),
    "subscription": (Need.NOTHING, "but what waits in the old one is not pulled any more, and its ids are its own"),
    "one source or several": (
        Need.NAME,
        "the order of the batches is in another registry: declare a pipeline of another name",
    ),
    "source added": (
        Need.NOTHING,
        "the watermark waits for it: it stays where it is until the source has sent records as far, or nothing "
        "for its idle_after",
    ),
    "source added, never idle": (
        Need.NOTHING,
        "the watermark waits for it: it stays where it is until the source has sent records as far; without an "
        "idle_after it waits for ever",
    ),
    "source retired": (
        Need.NOTHING,
        "it holds the watermark back no more: windows that waited for it alone close with the next run. What is "
        "registered of it must be taken in before; declared again under this name, it continues where it stopped",
    ),
    "another kind of source": (
        Need.NAME,
        "positions in the one say nothing of the other: give the new source another name",
    ),
    "source's schema": (Need.NOTHING, "from the next batch of the source on"),
    "source's columns": (
        Need.NOTHING,
        "from the next batch of the source on; a record id that is made otherwise is another id",
    ),
    "source's idle_after": (Need.NOTHING, "from the next poll on: the watermark waits for the source this long"),
    "mode to exactly_once": (
        Need.NOTHING,
        "before its first batch the next run puts the ids of one dedup horizon into the catalog, from `events`",
    ),
    "mode to at_least_once": (Need.NOTHING, "from the next batch on; what has begun ends as it began"),
    "output added": (Need.NOTHING, "its stream reads `events` from the start"),
    "output removed": (Need.NOTHING, "its table stays; declared again under this name, it continues where it stopped"),
    "made added": (
        Need.BACKFILL,
        "it is made from windows that close from now on; a backfill adds those closed before",
    ),
    "result added, no window": (Need.NOTHING, "it has rows from now on; what the function gave before is not in it"),
    "made removed": (Need.NOTHING, "its table stays; what closes meanwhile is missing there if it is declared again"),
    "transform, no state": (
        Need.BACKFILL,
        "rows from now on are of the new function; those written before are of the old",
    ),
    "transform, no window": (Need.NOTHING, "rows from now on are of the new function; those written before stay"),
    "transform, totals": (
        Need.INCARNATION,
        "its state holds sums of the old function; a new incarnation sums up all of `events`",
    ),
    "transform": (Need.BOTH, "open windows hold state of the old function: Spark refuses it or mixes both"),
    "made transform": (Need.BACKFILL, "windows that close from now on are of the new function"),
    "window": (Need.BOTH, "the state has windows of the old size, which Spark would keep writing next to the new"),
    "watermark_delay": (
        Need.INCARNATION,
        "Spark's watermark has its own memory: rows in time by the new watermark delay would be dropped",
    ),
    "panes": (
        Need.INCARNATION,
        "what is final is another matter in early panes; a new incarnation writes what is open again",
    ),
    "as records come": (
        Need.NAME,
        "the rows of open windows are in the table as their records came, and would be there again when the windows "
        "close: a new output reads `events` from the start",
    ),
    "when windows close": (
        Need.NAME,
        "open windows wait for their close, and their records would not be read again: a new output reads `events` "
        "from the start",
    ),
    "trigger": (Need.NOTHING, "from the next batch on"),
    "session": (
        Need.NAME,
        "sessions that go over the change can't be told apart: a new output reads `events` from the start",
    ),
    "join": (
        Need.NAME,
        "its state has rows of the old join, and its table rows that a new one would write again: a new output "
        "reads `events` from the start",
    ),
    "state": (
        Need.INCARNATION,
        "Spark keeps the state and the timers of the processor as it was: a new incarnation reads all of `events`, and "
        "its rows take the place of those that are there",
    ),
    "state, sent": (
        Need.NAME,
        "Spark keeps the state and the timers of the processor as it was, and what is sent can't be withdrawn: a "
        "new output reads `events` from the start",
    ),
    "state or none": (
        Need.NAME,
        "with a state of its own and without is another result: a new output reads `events` from the start",
    ),
    "processor": (
        Need.NOTHING,
        "rows from now on are of the new processor, over the state that the old one has left behind; where that means "
        "something else now, change state_version",
    ),
    "window or none": (
        Need.NAME,
        "with windows and without is another result: a new output reads `events` from the start",
    ),
    "from_output": (
        Need.NAME,
        "whose windows it is made of is another matter: a new output reads `events` from the start",
    ),
    "upstream": (
        Need.BACKFILL,
        "windows that close from now on are made of rows of the new function of an upstream output; those "
        "written before are of the old",
    ),
    "target": (Need.BACKFILL, "the new target gets windows from now on; a backfill puts those closed before there too"),
    "target, no window": (Need.NAME, "the new target would have rows from now on only: a new output reads all"),
    "sink": (Need.NAME, "the existing rows were written in another way: name a new table, or a new output"),
    "names": (Need.NOTHING, "from the next batch on; files that have their names keep them"),
    "late": (Need.NOTHING, "from the end of the next run on"),
    "on_backfill": (Need.NOTHING, "from the next backfill on"),
    "lookups": (
        Need.NOTHING,
        "from the next batch on; what is written saw the old table: onlyonce backfill … --lookups now",
    ),
    "on_backfill, correct": (
        Need.NAME,
        "what each window added is kept from the first row of a table on, or not at all",
    ),
}
"""Kind of change → what it needs, and why. `_kinds` maps an output's options to a kind."""


# The comparison of two declarations.


Parts = Mapping[str, Any]
PLACE = "file and position"
"""The identity's record_id if a record is identified by its file and position."""
DEFAULT = "the default"
NONE = "none"
_LINES_IN_AN_ERROR = 20


@dataclass(frozen=True)
class Change:
    """One part of a declaration that differs from what has run.

    A function has a unified diff of its lines instead of `before` and `after`.
    """

    query: str
    part: str
    before: str | None
    after: str | None
    need: Need
    why: str
    diff: str | None = None


def changes(query: str, before: Parts, after: Parts, *, stateless: bool = False) -> list[Change]:
    """Return how two declarations of a query differ, and what each change needs. Layout and comments do not count."""
    if query == "receive":
        return list(_receive_changes(before, after))
    return list(_output_changes(query, before["outputs"], after["outputs"], stateless))


def needing_a_name(found: Iterable[Change]) -> list[Change]:
    """Return the changes after which a pipeline or output needs another name."""
    return [change for change in found if change.need is Need.NAME]


class NeedsName(Refused):
    """A change that no new incarnation allows: what is new needs another name."""


def check_goes_on(incarnation: str, found: list[Change], *, invalid_lost: int | None = None) -> None:
    """Raise Refused if a run under the existing incarnation would write rows of two declarations to one table.

    It is NeedsName if a change needs another name.

    invalid_lost   how many invalid records are removed if the pipeline starts over under its name; None if it can't,
                   since it has kept something
    """
    pipeline = incarnation.split("/")[0]
    if renamed := needing_a_name(found):
        why = "" if invalid_lost is not None else f". {_sentence(renamed[0].why)}"
        raise NeedsName(
            _has_changed(renamed[0], incarnation),
            data=f"nothing was read or written{why}",
            hint=_other_name(pipeline, invalid_lost),
        )
    if first := next((change for change in found if change.need.stops), None):
        raise Refused(
            _has_changed(first, incarnation),
            data=f"nothing was read or written. {_sentence(first.why)}",
            hint=_by_plan(pipeline),
        )


def no_step(pipeline: str, found: Iterable[Change], invalid_lost: int | None) -> str | None:
    """Return why a plan has no step: a change needs another name; None if none does. `invalid_lost` as in
    `check_goes_on`.
    """
    if not (parts := [change.part for change in needing_a_name(found)]):
        return None
    if invalid_lost is not None:
        return starts_over(pipeline, invalid_lost)
    return (
        f"no step can be done until {' and '.join(parts)} of {pipeline} {'is' if len(parts) == 1 else 'are'} put back: "
        "what is new there needs another name, and can be declared next to the old one"
    )


def check_next_incarnation(
    incarnation: str, found: list[Change], *, invalid_lost: int | None = None, by_plan: bool = True
) -> None:
    """Raise Refused if the target would hold rows of both declarations even after a new incarnation.

    Then the changed pipeline or output needs another name. Raise it too without a plan (`by_plan`) for a change after
    which only the plan knows with which window the new incarnation begins.

    `invalid_lost` as in `check_goes_on`.
    """
    pipeline = incarnation.split("/")[0]
    if renamed := needing_a_name(found):
        raise Refused(
            _has_changed(renamed[0], incarnation),
            data=f"nothing was changed; the target would have rows of both declarations. {_sentence(renamed[0].why)}",
            hint=_other_name(pipeline, invalid_lost),
        )
    if not by_plan and (first := next(filter(begins_elsewhere, found), None)):
        raise Refused(
            _has_changed(first, incarnation),
            data="nothing was changed; a new incarnation made by hand would write windows that are written, or leave "
            "some out",
            hint=_by_plan(pipeline),
        )


def _by_plan(pipeline: str) -> str:
    return f"`onlyonce plan {pipeline}` says what it needs; with --yes it does it"


def begins_elsewhere(change: Change) -> bool:
    """Return whether a new incarnation after this change begins with another window than after no change."""
    part = change.part.split(" of ")[0]
    waited = part == "panes" and (change.before, change.after) == ("at_close", "on_time")
    return change.need in (Need.INCARNATION, Need.BOTH) and (part in ("window", "watermark_delay") or waited)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def mixes(change: Change) -> bool:
    """Return whether a run continues after this change, so that one table holds rows from before and after it."""
    return change.need is Need.BACKFILL or (change.query, change.part) in (
        ("receive", "record_id"),
        ("receive", "id_space"),
    )


def warning(pipeline: str, change: Change) -> str:
    """Return the warning for a change that `mixes`."""
    return f"{change.part} of {pipeline} has changed: {change.why}. `onlyonce plan {pipeline}` says what it needs"


def renamed(at: str, name: str, before: list[str]) -> str:
    """Return the warning for a pipeline that reads what pipelines `before` have read, which are no longer declared.

    `at`: the line of its name, as 'file:line: '.
    """
    old = before[0]
    return (
        f"{at}pipeline {name} has not run, and reads the source of {' and '.join(before)}, which no file that was "
        f"read declares any more. {name} reads it again from its start, and the rows of {old} stay. If "
        f"{name} is a new name of {old}: put name={old!r} back, and it continues where it stopped"
    )


def _has_changed(change: Change, incarnation: str) -> str:
    pipeline = incarnation.split("/")[0]
    values = "" if change.diff else f" ({_short(change.before)} → {_short(change.after)})"
    lines = f". The lines that differ:\n{_first_lines(change.diff, pipeline)}" if change.diff else ""
    return (
        f"{change.part} of {pipeline} has changed{values}, and incarnation {incarnation} has run under the old one"
        + lines
    )


def _other_name(pipeline: str, invalid_lost: int | None) -> str:
    if invalid_lost is not None:
        return starts_over(pipeline, invalid_lost)
    return f"put it back, and give what is new another name, as `onlyonce plan {pipeline}` says"


def starts_over(pipeline: str, invalid: int) -> str:
    """Return how a pipeline that has kept nothing starts over under its name, and without how many invalid records."""
    return (
        f"{pipeline} has kept no record yet, so it can start over under its name: `onlyonce drop {pipeline} --tables` "
        "says what is removed, and with --yes it does it. The next run reads again what its source still has"
        + (f". {only_copies(pipeline, invalid)}" if invalid else "")
    )


def only_copies(pipeline: str, invalid: int) -> str:
    """Return what a drop means for the invalid records of a pipeline, and how to keep a copy of them."""
    return (
        f"{invalid:,} invalid record{'s' if invalid > 1 else ''} of {pipeline} would be removed too: if the source has "
        "deleted one meanwhile, its only copy is here. While the pipeline is declared, "
        f"`onlyonce invalid {pipeline} --limit {invalid} --json` prints what to keep"
    )


def _receive_changes(before: Parts, after: Parts) -> Iterator[Change]:
    if ("inputs" in before) != ("inputs" in after):
        was, now = (", ".join(parts["inputs"]) if "inputs" in parts else None for parts in (before, after))
        yield _change("receive", "sources", was, now, "one source or several")
        return
    old, new = dict(before["columns"]), dict(after["columns"])
    for name in [*old, *(column for column in new if column not in old)]:
        was, now = old.get(name), new.get(name)
        if was != now:
            kind = "column added" if was is None else "column removed" if now is None else "column type"
            yield _change("receive", f"column {name}", was, now, kind)
    moved = PLACE in (before["record_id"], after["record_id"])
    for part in ("record_id", "event_time", "max_ahead"):
        if before[part] != after[part]:
            kind = "record_id or place" if part == "record_id" and moved else part
            yield _change("receive", part, text(before[part]), text(after[part]), kind)
    if "inputs" in after:
        yield from _input_changes(before, after)
    else:
        yield from _source_changes(before["source"], after["source"], "")
    # The mode comes from the batch row and from the declaration: it is not part of the identity.
    was, now = before.get("mode"), after.get("mode")
    if was and now and was != now and not moved:
        yield _change("receive", "mode", was, now, f"mode to {now}")


def _input_changes(before: Parts, after: Parts) -> Iterator[Change]:
    """Compare the sources of a pipeline that has several."""
    if before["id_space"] != after["id_space"]:
        yield _change("receive", "id_space", before["id_space"], after["id_space"], "record_id")
    old, new = before["inputs"], after["inputs"]
    for name in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(name), new.get(name)
        if was is None:
            kind = "source added" if "idle_after" in now else "source added, never idle"
            yield _change("receive", f"source {name}", None, now["source"]["kind"], kind)
        elif now is None:
            yield _change("receive", f"source {name}", was["source"]["kind"], None, "source retired")
        elif was["source"]["kind"] != now["source"]["kind"]:
            yield _change(
                "receive", f"source {name}", was["source"]["kind"], now["source"]["kind"], "another kind of source"
            )
        else:
            yield from _source_changes(was["source"], now["source"], f" of source {name}")
            for part, absent in (("schema", DEFAULT), ("columns", NONE), ("idle_after", NONE)):
                if was.get(part) != now.get(part):
                    yield _change(
                        "receive",
                        f"{part} of source {name}",
                        text(was.get(part), absent),
                        text(now.get(part), absent),
                        f"source's {part}",
                    )


def _source_changes(before: Parts, after: Parts, of: str) -> Iterator[Change]:
    topics = before["kind"] == after["kind"] == "kafka"
    for part, kind, absent, compared in (
        ("inbox", "inbox", DEFAULT, True),
        ("max_files_a_batch", "max_files_a_batch", NONE, True),
        ("topic", "topic", NONE, True),
        ("key", "beside", NONE, topics),
        ("headers", "beside", NONE, topics),
        ("envelope", "beside", NONE, topics),
        ("isolation", "isolation", NONE, topics),
        ("subscription", "subscription", NONE, True),
        ("format", "format", NONE, True),
        ("max_record_bytes", "max_record_bytes", DEFAULT, True),
    ):
        was, now = before.get(part), after.get(part)
        if compared and was != now:
            yield _change("receive", part + of, text(was, absent), text(now, absent), kind)


def _output_changes(query: str, before: Parts, after: Parts, stateless: bool) -> Iterator[Change]:
    for name in [*before, *(output for output in after if output not in before)]:
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            kind = "made added" if old is None else "made removed"
            if kind == "made added" and "window" not in after[query]:
                kind = "result added, no window"
            yield _change(query, f"output {name}", None if old is None else name, None if new is None else name, kind)
            continue
        for part, kind in _kinds(old, new, root=name == query, stateless=stateless):
            called = "function" if part == "source" else part
            yield _change(
                query, f"{called} of output {name}", text(old.get(part), None), text(new.get(part), None), kind
            )


def _kinds(old: Parts, new: Parts, *, root: bool, stateless: bool) -> Iterator[tuple[str, str]]:
    """Yield each option that differs, with its kind of change."""
    none = "window" not in old or "window" not in new
    session = any(one.get("window", {}).get("kind") == "session" for one in (old, new))
    joins, states = ("join" in old or "join" in new), ("stateful" in old or "stateful" in new)
    state = _of_state(old, new)
    for part in ("stateful", "state"):
        if old.get(part) != new.get(part):
            yield part, state
    if old.get("join") != new.get("join"):
        yield "join", "join"
    if not same_code(old["source"], new["source"]):
        yield (
            "source",
            "join"
            if joins
            else "processor"
            if states
            else _of_transform(root=root, stateless=stateless, none=none, session=session),
        )
    if old["from_output"] == new["from_output"] and not same_code(old.get("upstream", ""), new.get("upstream", "")):
        yield "upstream", "upstream"
    if old["from_output"] != new["from_output"]:
        yield "from_output", "from_output"
    triggers = all(isinstance(one["panes"], Mapping) for one in (old, new))
    early = not all(one["panes"] in ("on_time", "at_close") for one in (old, new))
    comes = root and comes_as_records(old, stateless=stateless)
    for part in ("window", "watermark_delay", "panes"):
        if old.get(part) != new.get(part):
            if part == "panes" and comes:
                yield part, "as records come"
                continue
            if part == "panes" and triggers:
                yield part, "trigger"
                continue
            wanted = "window or none" if part == "window" and none else "session" if session else part
            yield (
                part,
                "join" if joins else state if states else "window or none" if part == "window" and early else wanted,
            )
    to_files, to_table = "files" in new and "files" not in old, "files" in old and "files" not in new
    if comes and to_files:
        yield "target", "as records come"
    elif root and stateless and not none and to_table and old["panes"] == new["panes"] == "on_time":
        yield "target", "when windows close"
    elif old["target"] != new["target"]:
        yield "target", "target, no window" if (none or states) and root else "target"
    else:
        for part in ("write", "keys", "sequence_by", "delete_when", "files", "pane_column"):
            if old.get(part) != new.get(part):
                yield part, "sink"
    for part in ("late", "on_backfill"):
        if old[part] != new[part]:
            kept = part == "on_backfill" and "correct" in (old[part], new[part])
            yield part, "on_backfill, correct" if kept and old["target"] == new["target"] else part
    if old.get("lookups") != new.get("lookups"):
        yield "lookups", "lookups"
    if not same_code(old.get("names", ""), new.get("names", "")):
        yield "names", "names"
    if not same_code(old.get("reject", ""), new.get("reject", "")):
        yield "reject", _of_transform(root=root, stateless=stateless, none=none, session=session)


def comes_as_records(output: Parts, *, stateless: bool) -> bool:
    """Return whether the rows of an output with windows were written in the batch that read their records.

    stateless   its query kept no state. Then a file sink, and `panes` that wait, get whole windows.
    """
    whole = output["panes"] != "on_time" or "files" in output or output.get("window", {}).get("kind") == "chained"
    return stateless and "window" in output and not whole


def collects_now(at: str, pipeline: str, output: str) -> NeedsName:
    """Return the error for a function that gave rows as records came, and does so no more. Spark's plan says so."""
    why = CONSEQUENCES["as records come"][1]
    return NeedsName(
        f"{at}output {output} of {pipeline}: its function collects records now, and gave rows as records came before",
        data=f"nothing was read or written. {_sentence(why)}",
        hint=_other_name(pipeline, None),
    )


def text(part: Any, absent: str | None = NONE) -> str | None:
    """Return one part of an identity as people read it: `fixed(size=1 hour)`, `shop, day`."""
    if part is None:
        return absent
    if isinstance(part, Mapping):
        options = [f"{key}={text(value)}" for key, value in part.items() if key != "kind"]
        return f"{part['kind']}({', '.join(options)})" if "kind" in part else ", ".join(options)
    if isinstance(part, list):
        return ", ".join(
            str(text(one)) if isinstance(one, Mapping) else " ".join(one) if isinstance(one, list) else str(one)
            for one in part
        )
    return stored_in_words(str(part))


def _of_state(old: Parts, new: Parts) -> str:
    if ("stateful" in old) != ("stateful" in new):
        return "state or none"
    return "state" if new["target"].startswith(("delta:", "postgres:")) else "state, sent"


def _of_transform(*, root: bool, stateless: bool, none: bool, session: bool) -> str:
    if not root:
        return "made transform"
    if stateless:
        return "transform, no window" if none else "transform, no state"
    return "transform, totals" if none else "session" if session else "transform"


def _change(query: str, part: str, before: str | None, after: str | None, kind: str) -> Change:
    if part.startswith(("function of", "reject of", "upstream of", "names of")):
        return Change(query, part, None, None, *CONSEQUENCES[kind], _diff(before, after))
    return Change(query, part, before, after, *CONSEQUENCES[kind])


def _diff(before: str | None, after: str | None) -> str:
    """Return the unified diff of two functions: the lines that differ, without the lines around them."""
    old, new = ((source or "").splitlines() for source in (before, after))
    # The first two lines name files.
    return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=0))[2:])


def _first_lines(diff: str, pipeline: str) -> str:
    lines = diff.splitlines()
    left = [f"… {len(lines) - _LINES_IN_AN_ERROR} more lines: onlyonce plan {pipeline}"]
    return "\n".join(lines[:_LINES_IN_AN_ERROR] + left * (len(lines) > _LINES_IN_AN_ERROR))


def _short(value: str | None) -> str:
    text = " ".join((value or "none").split())
    return text if len(text) <= 60 else text[:57] + "…"
