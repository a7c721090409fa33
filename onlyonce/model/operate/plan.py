"""What each change of a declaration needs: nothing, a backfill, a new lineage, or another name. Pure.

Two declarations are compared by the parts of their identity (`onlyonce/declare/identity.py`), which the log keeps once
for each hash. `consequences.CONSEQUENCES` says what each change needs; `tests/spark/outputs/test_changes.py` tries each
of them on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onlyonce.model.errors import Refused
from onlyonce.model.operate.code import same_code
from onlyonce.model.operate.consequences import CONSEQUENCES, Need

Parts = Mapping[str, Any]
PLACE = "file and position"
"""The identity's record_id where a record is its place."""
DEFAULT = "the default"
NONE = "none"


@dataclass(frozen=True)
class Change:
    """One part of a declaration that differs from what has run."""

    query: str
    part: str
    before: str | None
    after: str | None
    need: Need
    why: str


def changes(query: str, before: Parts, after: Parts, *, stateless: bool = False) -> list[Change]:
    """How two declarations of a query differ, and what each difference needs. Layout and comments are no difference."""
    if query == "receive":
        return list(_receive_changes(before, after))
    return list(_output_changes(query, before["outputs"], after["outputs"], stateless))


def check_goes_on(query: str, lineage: str, found: list[Change]) -> None:
    """Let a run go on under the lineage that is there; raises Refused when it would mix two declarations."""
    stops = [change for change in found if change.need.stops]
    if not stops:
        return
    first = stops[0]
    pipeline = lineage.split("/")[0]
    raise Refused(
        f"{first.part} of {pipeline} has changed ({_short(first.before)} → {_short(first.after)}), and lineage "
        f"{lineage} "
        "has run under the old one",
        data=f"nothing was read or written. {first.why}",
        hint=f"put it back and choose another name for what is new, as `onlyonce plan {pipeline}` says"
        if any(change.need is Need.NAME for change in stops)
        else f"`onlyonce plan {pipeline}` says what it needs; with --apply --yes it does it",
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
    # The mode comes from the batch row and from the declaration: it is no part of the identity.
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
            yield _change(query, f"{part} of output {name}", text(old.get(part), None), text(new.get(part), None), kind)


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
    for part in ("window", "lateness", "panes"):
        if old.get(part) != new.get(part):
            if part == "panes" and triggers:
                yield part, "trigger"
                continue
            wanted = "window or none" if part == "window" and none else "session" if session else part
            yield (
                part,
                "join" if joins else state if states else "window or none" if part == "window" and early else wanted,
            )
    if old["target"] != new["target"]:
        yield "target", "target, no window" if (none or states) and root else "target"
    else:
        for part in ("write", "keys", "newest_by", "deletes", "files"):
            if old.get(part) != new.get(part):
                yield part, "sink"
    for part in ("stable_input", "late", "on_backfill"):
        if old[part] != new[part]:
            kept = part == "on_backfill" and "correct" in (old[part], new[part])
            yield part, "on_backfill, correct" if kept and old["target"] == new["target"] else part
    if old.get("lookups") != new.get("lookups"):
        yield "lookups", "lookups"
    if not same_code(old.get("reject", ""), new.get("reject", "")):
        yield "reject", _of_transform(root=root, stateless=stateless, none=none, session=session)


def text(part: Any, absent: str | None = NONE) -> str | None:
    """Return one part of an identity as people read it: `fixed(size=1:00:00)`, `shop, day`."""
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
    return str(part)


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
    if part.startswith(("source of", "reject of", "upstream of")):
        before, after = _only(before, after), _only(after, before)
    return Change(query, part, before, after, *CONSEQUENCES[kind])


def _only(one: str | None, other: str | None) -> str:
    """The lines of a function that the other one does not have."""
    known = set((other or "").splitlines())
    return "\n".join(line.strip() for line in (one or "").splitlines() if line not in known)


def _short(value: str | None) -> str:
    text = " ".join((value or "none").split())
    return text if len(text) <= 60 else text[:57] + "…"
