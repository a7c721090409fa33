"""What must hold of docker/Dockerfile and .dockerignore. The rules take their texts, so that tests can break them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from onlyonce.local import prerequisites
from tests.compose.composed import ROOT
from tests.compose.rules import MULTI_ARCH, PINNED

SECRET_FILES = (
    ".env",
    ".env.local",
    ".onlyonce",
    ".onlyonce/postgres/passwords.json",
    ".git",
    ".venv",
    "id_rsa",
    "docker/.env",
)


class Image(NamedTuple):
    """The texts of both files."""

    dockerfile: str
    ignore: str

    def steps(self) -> list[tuple[str, str]]:
        """The instructions with their arguments, continued lines joined, comments left out."""
        lines = "\n".join(line for line in self.dockerfile.splitlines() if not line.lstrip().startswith("#"))
        joined = re.sub(r"\\\n\s*", " ", lines).splitlines()
        return [
            (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined if line.strip())
        ]

    def arguments(self, instruction: str) -> list[str]:
        """The arguments of each instruction of a kind."""
        return [rest for word, rest in self.steps() if word == instruction]

    def allowed(self, path: str) -> bool:
        """Whether the builder gets a path: the last line that holds it or a folder above it decides."""
        taken = True
        for line in self.ignore.splitlines():
            pattern = line.strip().removeprefix("!")
            above = [path, *map(str, PurePosixPath(path).parents)]
            if (
                pattern
                and not pattern.startswith("#")
                and any(_matches(part, pattern) for part in above if part != ".")
            ):
                taken = line.startswith("!")
        return taken


def load() -> Image:
    """Both files as they are."""
    return Image((ROOT / "docker" / "Dockerfile").read_text(), (ROOT / ".dockerignore").read_text())


def bases_are_pinned(image: Image) -> Iterator[str]:
    """A stage begins from an earlier one, or from an image with version and digest that is made for both machines."""
    stages = set()
    for source in image.arguments("FROM"):
        name, _, stage = source.partition(" AS ")
        found = PINNED.fullmatch(name)
        if name not in stages and (found is None or found["name"] not in MULTI_ARCH):
            yield f"FROM {source}: not pinned, or not known to be made for amd64 and arm64"
        stages.add(stage)


def python_and_java_are_ours(image: Image) -> Iterator[str]:
    """Python and Java are versions that the Makefile takes."""
    python = re.search(r"^FROM python:(\d+)\.(\d+)\.", image.dockerfile, re.MULTILINE)
    if python is None or not prerequisites.OLDEST <= (int(python[1]), int(python[2])) <= prerequisites.NEWEST:
        yield f"Python is {python and python[0]}"
    java = re.search(r"^FROM eclipse-temurin:(\d+)\.", image.dockerfile, re.MULTILINE)
    if java is None or int(java[1]) < prerequisites.JAVA:
        yield f"Java is {java and java[0]}"


def environment_is_the_locked_one(image: Image) -> Iterator[str]:
    """Packages and jars come by the Makefile, from the lock and docker/ivy.xml, and by nothing beside it."""
    runs = " ".join(image.arguments("RUN"))
    if "make env" not in runs:
        yield "the environment is not made by the Makefile"
    for file in ("docker/requirements.lock", "docker/ivy.xml", "pyproject.toml"):
        if file not in [source for source, _ in copied(image)]:
            yield f"{file} is not copied"
    if found := re.findall(r"(?:pip|uv pip|npm|conda) install[^&]*|curl[^&]*|wget[^&]*", runs) + image.arguments("ADD"):
        yield f"installs beside the lock: {found}"


def code_is_one_layer(image: Image) -> Iterator[str]:
    """The last stage takes the code by its last COPY, and by no other, so that packages and jars stay as they are."""
    stage, with_code = "", set()
    taken: list[str] = []
    for word, rest in image.steps():
        if word == "FROM":
            stage, taken = rest.partition(" AS ")[2], []
        elif word == "COPY" and (source := re.search(r"--from=(\w+)", rest)):
            taken.append(source[1])
        elif word == "COPY" and "onlyonce" in rest.split():
            with_code.add(stage)
    if [source for source in taken if source in with_code] != taken[-1:]:
        yield f"the last stage copies from {taken}, and the code is in {sorted(with_code)}"


def sources_are_there(image: Image) -> Iterator[str]:
    """What is copied is in the checkout and not kept out by .dockerignore."""
    for source, _ in copied(image):
        if not (ROOT / source).exists():
            yield f"{source} is not in the checkout"
        elif not image.allowed(source):
            yield f"{source} is kept out by .dockerignore"


def secrets_stay_out(image: Image) -> Iterator[str]:
    """The builder gets what is copied and nothing else: no file of secrets, no state, and no argument that holds
    one."""
    if image.ignore.splitlines()[1:2] != ["*"]:
        yield ".dockerignore does not begin by leaving out all"
    yield from (f"{path} would go to the builder" for path in SECRET_FILES if image.allowed(path))
    wanted = {source for source, _ in copied(image)}
    for line in image.ignore.splitlines():
        if line.startswith("!") and not any(
            source == line[1:] or source.startswith(f"{line[1:]}/") for source in wanted
        ):
            yield f"{line}: goes to the builder, and nobody copies it"
    for rest in image.arguments("ENV") + image.arguments("ARG"):
        if re.search(r"PASSWORD|SECRET|TOKEN|_KEY\b", rest, re.IGNORECASE):
            yield f"a secret in the image's history: {rest}"


def runs_as_a_user(image: Image) -> Iterator[str]:
    """The last stage makes the user that docker-compose.yml names, may write its own folders only, and ends as that
    user."""
    last = image.steps()[max(n for n, (word, _) in enumerate(image.steps()) if word == "FROM") :]
    users = [rest for word, rest in last if word == "USER"]
    runs = " ".join(rest for word, rest in last if word == "RUN")
    if users[-1:] != ["onlyonce"] or "useradd" not in runs:
        yield f"ends as {users[-1:] or 'root'}"
    if any(f"/var/lib/{folder}" not in runs for folder in ("onlyonce", "airflow", "spark")):
        yield "a new volume takes its owner from the image's folder, which is not made"
    if any("--chown" in rest for word, rest in last if word == "COPY"):
        yield "the user could change the code that it runs"


def copied(image: Image) -> list[tuple[str, str]]:
    """Source and target of each COPY from the checkout."""
    found = []
    for rest in image.arguments("COPY"):
        *sources, target = [part for part in rest.split() if not part.startswith("--")]
        if "--from=" not in rest:
            found += [(source.rstrip("/"), target) for source in sources]
    return found


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return PurePosixPath(path).name == pattern[3:]
    return PurePosixPath("/" + path).match("/" + pattern)


RULES: dict[str, Callable[[Image], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        bases_are_pinned, python_and_java_are_ours, environment_is_the_locked_one, code_is_one_layer, sources_are_there, secrets_stay_out,
        runs_as_a_user,
    )
}  # fmt: skip
