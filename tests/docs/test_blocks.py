"""What a page shows can be typed: its Python runs, its commands are commands, what it names is there."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from onlyonce.cli import app
from onlyonce.settings import ROOT
from tests.docs.pages import PAGES, Block, blocks

PYTHON = {page: [b for b in blocks("python") if b.page == page] for page in PAGES}
SHELL = [block for language in ("sh", "bash", "shell", "console") for block in blocks(language)]


ONLY_COMPILED = {
    "existing-airflow": "it needs a project of the reader's own; tests/dags",
    "notebook": "it needs a platform that has results; tests/spark/cli/test_documented_commands.py",
    "test-your-pipeline": "its tests need Spark; tests/spark/outputs/test_documented_function.py",
    "tutorial": "it is played from its first line to its last by a test of its own",
}
"""Pages whose Python can't run by itself, and why; what plays them instead."""


def by_name(value: object) -> str:
    """A page or a block as the name of its test."""
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


@functools.cache
def commands() -> Any:
    """The application as a Click command."""
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", [page for page, found in PYTHON.items() if found], ids=by_name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom, as if typed into one file. Declarations are checked as they are made."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page", "__file__": str(tmp_path / "page.py")}
    for block in PYTHON[page]:
        code = compile("\n" * block.line + block.text, str(page), "exec")
        if page.stem not in ONLY_COMPILED:
            exec(code, names)


def commands_in(block: Block, program: str) -> Iterator[list[str]]:
    """The arguments of each line that calls the program, without its remark; in a pipe or after && as well."""
    for line in block.text.replace("\\\n", " ").splitlines():
        for part in " ".join(map(shlex.quote, shlex.split(line.removeprefix("$ "), comments=True))).split(" '&&' "):
            words = shlex.split(part.split(" '|' ")[0])
            words = words[next((n for n, word in enumerate(words) if "=" not in word), 0) :]
            words = words[words.index(program) :] if words[:2] == ["docker", "compose"] and program in words else words
            if words[:1] == [program] and not any(word.startswith(("<", ">")) for word in words):
                yield words[1:]


@contextmanager
def suppress_missing_files() -> Iterator[None]:
    """A page names files that the reader has."""
    try:
        yield
    except typer.BadParameter as error:
        if "does not exist" not in error.message:
            raise


@pytest.mark.parametrize("block", SHELL, ids=by_name)
def test_the_commands_of_a_block_are_commands(block: Block) -> None:
    """Each is taken apart as at the shell, with its options and their types; nothing is run."""
    for argv in commands_in(block, "onlyonce"):
        command, context = commands(), None
        while hasattr(command, "list_commands") and argv and not argv[0].startswith("-"):
            name, *argv = argv
            found = command.get_command(context or command.make_context("onlyonce", [], resilient_parsing=True), name)
            assert found is not None, f"{block}: there is no command {name!r}"
            command = found
        if not hasattr(command, "list_commands"):
            with suppress_missing_files():
                command.make_context(command.name, [*argv])
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for argv in commands_in(block, "make"):
        assert {word for word in argv if "=" not in word} <= {*targets}, block


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_what_a_page_names_is_there(page: Path) -> None:
    """Files of the repository in code signs, and the platform's variables."""
    text = page.read_text()
    for name in re.findall(r"`((?:tests|onlyonce|jobs|docker|sql|dags|plugins|docs)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), f"{page.name}: {name}"
    known = source_text()
    for name in set(re.findall(r"\bONLYONCE_[A-Z_]+\b", text)):
        assert name in known or f" {name.removeprefix('ONLYONCE_').lower()}: " in known, f"{page.name}: {name}"


@functools.cache
def source_text() -> str:
    """Everything in which a variable may be read or set."""
    files = [
        *(ROOT / "onlyonce").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
        *ROOT.glob("docker*/*"),
        *ROOT.glob("docker-compose*.yml"),
        ROOT / "Makefile",
    ]
    return "\n".join(file.read_text() for file in files if file.is_file() and file.name != "test_blocks.py")


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=by_name)
def test_the_links_of_a_page_beside_the_site_lead_somewhere(page: Path) -> None:
    """Those of the site are checked when it is built."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_is_read_in_three_minutes() -> None:
    """At most 200 lines."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
