"""Docstrings, messages and pages use plain words: CONTRIBUTING.md says what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.platform import ROOT

PAGES, DOCSTRINGS, MESSAGES = "pages", "docstrings", "messages"
PROSE = (PAGES, DOCSTRINGS)
ALL = (PAGES, DOCSTRINGS, MESSAGES)
AVOIDED = {
    "words that are in the table of CONTRIBUTING.md": (
        r"\b(tells?|told|whoever|nobody|somebody|anew|mends?|of which|the same of|lets go|in earnest|drains?|"
        r"parcels?|couriers?|witness(es)?|folded in|taken back)\b",
        PROSE,
    ),
    "beside: next to, with": (r"\bbeside\b", ALL),
    "goes on: continues": (r"\b(go|goes|going) on\b", ALL),
    "a docstring begins with its noun or verb": (r"\AWhat\b", (DOCSTRINGS,)),
    "also of: including, even, too": (
        r", also (after|at|by|during|for|if|in|inside|of|on|through|under|when|with|within|without)\b",
        ALL,
    ),
    "until then: until which moment": (r"\b(until|since) then\b", ALL),
    "the output before: upstream output": (r"\b(an|the) output before\b|\boutputs before (it|this|in)\b", ALL),
    "the rule of watermark delay: of late records": (r"\b(rule of|judges?) watermark delay\b", ALL),
    "the row fixes: stores": (r"\brow( of the batch)? (has fixed|fixes)\b", PROSE),
    "use up a transaction: an empty commit takes its id": (r"\b(use|used|uses) up\b", PROSE),
    "other rows in a replay: different rows": (r"\b(computes?|gives?|returns?|would write) other rows\b", ALL),
    "has left: has left behind": (r"\b(has|have) left\b(?= (by|for|in|so)\b|[.,;:])", PROSE),
    "is not there: does not exist": (r"\b(is|are) not there\b", (DOCSTRINGS, MESSAGES)),
    "mixes two declarations: rows of two declarations in one table": (r"\bmix(es)? two declarations\b", ALL),
}
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def _strings() -> Iterator[tuple[str, str, str]]:
    """Yield the docstrings of modules, classes, functions and constants, and the parts of messages, with their place."""
    for path in ROOT.glob("onlyonce/**/*.py"):
        where, tree = f"{path.relative_to(ROOT)}", ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                kind = DOCSTRINGS if id(node) in docstrings else MESSAGES
                yield f"{where}:{node.lineno}", kind, node.value.strip()


@pytest.fixture(scope="module")
def prose() -> list[tuple[str, str, str]]:
    """Names in code are no prose."""
    pages = [
        (f"{path.relative_to(ROOT)}", PAGES, path.read_text())
        for path in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
        if path.parent.name != "decisions" and path.name != "settings.md"  # one setting has the value nobody
    ]
    return [(where, kind, CODE.sub("", text)) for where, kind, text in [*pages, *_strings()]]


@pytest.mark.parametrize("rule", AVOIDED)
def test_docstrings_messages_and_pages_use_plain_words(prose: list[tuple[str, str, str]], rule: str) -> None:
    """Each rule names what to write instead."""
    pattern, kinds = AVOIDED[rule]
    avoided = re.compile(pattern.replace(" ", r"(?: *\n *| +)"), re.IGNORECASE)
    found = [(where, word.group()) for where, kind, text in prose if kind in kinds for word in avoided.finditer(text)]
    assert found == []
