"""Plays the transcripts of changes without a server: by their plain definition, and by the target that
`onlyonce.testing` has in the place of a sink."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce import Output, Postgres
from onlyonce.testing.playing import Target, newest_of
from tests.support.changes_of_a_table import Change
from tests.transcripts import change_story
from tests.transcripts.change_story import FOLDER, Had, Story

START = datetime(2026, 1, 1, tzinfo=UTC)
TOLD = change_story.all_in(FOLDER)
WRONG = change_story.all_in(FOLDER / "wrong")


def compared(told: Story) -> list[str]:
    """What differs between a transcript and the plain definition."""
    came = [changes for changes, _ in told.steps]
    return [
        sentence
        for number, (_, expected) in enumerate(told.steps, 1)
        for sentence in change_story.differences(f"step {number}", expected, change_story.had(came[:number]))
    ]


def target(write: Any) -> Target:
    """The table of an output that follows changes."""
    return Target(
        Output(
            name="customers",
            transform="a:b",
            sink=Postgres(table="t.t", write=write, keys="key", sequence_by="position", delete_when="gone"),
        )
    )


def row(change: Change) -> dict[str, Any]:
    """As an output's function gives it."""
    return {
        "key": change.key, "value": change.value, "position": change.position, "gone": change.deleted,
        "valid_from": START + timedelta(seconds=change.position),
    }  # fmt: skip


def seconds(time: datetime | None) -> int | None:
    """Since the first position."""
    return None if time is None else int((time - START).total_seconds())


@pytest.mark.parametrize("told", TOLD, ids=lambda told: told.name)
def test_the_definition_tells_the_same_story(told: Story) -> None:
    """At each step the rows, the deleted keys, the versions and the number of changes that came before are exactly
    those of the transcript."""
    assert compared(told) == []


@pytest.mark.parametrize("told", TOLD, ids=lambda told: told.name)
def test_the_target_of_the_tests_tells_the_same_story(told: Story) -> None:
    """What a user's own tests see of a sink with `sequence_by`, `delete_when` and `history` is what a table has."""
    newest, history = target("upsert"), target("history")
    seen: set[Change] = set()
    for number, (changes, expected) in enumerate(told.steps, 1):
        fresh = [change for change in changes if change not in seen]
        seen |= {*changes}
        newest.write(newest_of(lambda one: str(one["key"]), ("position",), [row(change) for change in fresh]))
        history.write([row(change) for change in fresh])
        found = Had(
            frozenset((one["key"], one["value"]) for one in newest.rows()), frozenset((one["key"], one["position"]) for one in newest._deleted.values()),
            frozenset((one["key"], one["value"], seconds(one["valid_from"]), seconds(one["valid_to"])) for one in history.rows()), expected.again,
        )  # fmt: skip
        assert change_story.differences(f"step {number}", expected, found) == []


@pytest.mark.parametrize("told", WRONG, ids=lambda told: told.name)
def test_a_wrong_transcript_fails_and_says_what_differs(told: Story) -> None:
    """One wrong expectation; the sentence names the step and what differs."""
    assert told.must_say in compared(told)


@pytest.mark.parametrize(
    "right, wrong, says",
    [
        ("table: ann 10", "tables: ann 10", "'tables' is no word here"),
        ("created 10", "made 10", "'ann made 10 at 1' is no change"),
        ("created 10", "deleted 10", "'ann deleted 10 at 1' is no change"),
        ("from 1", "since 1", "'ann 10 since 1' is no version"),
        ("connector", "radio", "feed 'radio'"),
    ],
)
def test_what_is_no_word_of_a_transcript_is_refused(tmp_path: Path, right: str, wrong: str, says: str) -> None:
    """It would expect nothing, and pass."""
    good = (
        "title: t\nfeed: connector\nsteps:\n  - comes: ann created 10 at 1\n    table: ann 10\n    history: ann "
        "10 from 1\n"
    )
    path = tmp_path / "mine.yaml"
    path.write_text(good)
    assert compared(change_story.read(path)) == []
    path.write_text(good.replace(right, wrong))
    with pytest.raises(ValueError, match=re.escape(says)):
        change_story.read(path)
