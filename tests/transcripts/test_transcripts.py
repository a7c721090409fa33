"""The transcripts against the pure model; and those that must fail do, with words that say what differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.transcripts import model, story
from tests.transcripts.differences import differences
from tests.transcripts.story import FOLDER, Story

TOLD = story.all_in(FOLDER)
WRONG = story.all_in(FOLDER / "wrong")


def compared(told: Story) -> list[str]:
    """What differs between a transcript and the model."""
    said = []
    for number, (step, found) in enumerate(zip(told.steps, model.play(told), strict=True), 1):
        for name, expected in step.expected.items():
            said += differences(f"step {number}, {name}", expected, found[name])
        invalid = {(r.key, r.time) for r in step.records if model.is_invalid(r, step, told)}
        if invalid != set(step.invalid):
            said.append(f"step {number}: another record is invalid")
    return said


@pytest.mark.parametrize("told", TOLD, ids=lambda told: told.name)
def test_the_model_tells_the_same_story(told: Story) -> None:
    """At each step each output writes, and calls late, exactly what the transcript says, and is closed so far."""
    assert compared(told) == []


@pytest.mark.parametrize("told", WRONG, ids=lambda told: told.name)
def test_a_wrong_transcript_fails_and_says_what_differs(told: Story) -> None:
    """One wrong expectation, one sentence, which names the step, the output, and both values."""
    assert told.must_say is not None
    assert told.must_say in compared(told)


GOOD = """
title: a story
outputs:
  minutes:
    window: fixed 1 minute
steps:
  - batch: a at 10:00
    minutes:
      writes: nothing
"""


@pytest.mark.parametrize(
    "right, wrong, says",
    [
        ("writes: nothing", "write: nothing", "step 1: 'write' is no word here"),
        ("minutes:\n      w", "minute:\n      w", "step 1: 'minute' is no word here"),
        ("title:", "titel:", "'titel' is no word here"),
        ("a at 10:00", "a 10:00", "step 1: 'a 10:00' is no record"),
        ("a at 10:00", "a at ten", "step 1: Invalid isoformat"),
        ("fixed 1 minute", "fixed 1 minutes wide", "window 'fixed 1 minutes wide'"),
        ("fixed 1 minute", "fixed 1 fortnight", "'1 fortnight' is no length of time"),
        ("batch: a at 10:00", "silence: 10:00", "step 1: 'silence' is no word here"),
        ("batch: a at 10:00", "clock: 10:00", "a step is one of"),
        (
            "    window: fixed 1 minute",
            "    window: fixed 1 minute\n    panes: late",
            "'late': write one of: on time, early",
        ),
    ],
)
def test_what_is_no_word_of_a_transcript_is_refused(tmp_path: Path, right: str, wrong: str, says: str) -> None:
    """A misspelt expectation would expect nothing, and pass; the error names the file and the step."""
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    story.read(path)
    path.write_text(GOOD.replace(right, wrong))

    with pytest.raises(ValueError, match=re.escape(says)) as error:
        story.read(path)

    assert str(error.value).startswith("mine.yaml: ")
