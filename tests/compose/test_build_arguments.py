"""The arguments of the image's build reach what they are for: the steps run in a folder, with stand-ins for programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compose import composed, image
from tests.compose.composed import ROOT

ABSOLUTE = re.compile(r"(?<![\w.}])/(usr/local/share|etc/apt|var/lib/apt)\b")
SOURCES = "URIs: http://deb.debian.org/debian\nURIs: http://deb.debian.org/debian-security\n"
GIVEN = {
    "DEBIAN_MIRROR": "https://mirror.example/debian",
    "PIP_INDEX_URL": "https://mirror.example/simple",
    "IVY_SETTINGS_XML": '<ivysettings>it\'s & "here" %s</ivysettings>',
    "CA_CERTIFICATE": "-----BEGIN CERTIFICATE-----\nMII%d\n-----END CERTIFICATE-----",
}
STAND_IN = """#!/bin/sh
{
    printf '%s' "${0##*/}"; printf ' [%s]' "$@"; printf '\\n'
    printf 'index %s\\n' "${PIP_INDEX_URL-unset}"
    for one in "$@"; do
        case "$one" in IVY_SETTINGS=?*) printf 'settings %s\\n' "$(cat "${one#IVY_SETTINGS=}")" ;; esac
    done
} >> "$RECORD"
if [ "${0##*/}" = make ]; then mkdir -p .venv/.uv .venv/bin ../code && touch .venv/ivy.log; fi
"""
"""Notes its arguments, the index of Python packages and the content of the settings of Ivy."""
PROGRAMS = ("update-ca-certificates", "keytool", "apt-get", "make")


def arguments() -> dict[str, str]:
    """Return the name of each argument of the build with the stage that declares it."""
    stage, found = "", {}
    for word, rest in image.load().steps():
        stage = rest.partition(" AS ")[2] if word == "FROM" else stage
        if word == "ARG":
            found[rest.partition("=")[0]] = stage
    return found


def built(root: Path, given: dict[str, str]) -> str:
    """Run the steps of the stage that downloads, and return what the programs were called with."""
    work, programs, java = root / "opt" / "onlyonce", root / "programs", root / "java" / "bin"
    for folder in (work, programs, java, root / "usr/local/share/ca-certificates", root / "etc/apt"):
        folder.mkdir(parents=True)
    (root / "etc/apt/debian.sources").write_text(SOURCES)
    for name in PROGRAMS:
        path = (java if name == "keytool" else programs) / name
        path.write_text(STAND_IN)
        path.chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}", "JAVA_HOME": str(java.parent), "RECORD": str(root / "record"),
    }  # fmt: skip
    stage = ""
    for word, rest in image.load().steps():
        stage = rest.partition(" AS ")[2] if word == "FROM" else stage
        name, _, default = rest.partition("=")
        if stage != "packages":
            continue
        if word == "ARG":
            environment[name] = given.get(name, default.strip('"'))
        elif word == "ENV":
            environment[name] = default
        elif word == "RUN":
            script = ABSOLUTE.sub(rf"{root}/\1", rest)
            subprocess.run(["sh", "-c", script], cwd=work, env=environment, check=True)
    return (root / "record").read_text().replace(str(root), "")


def test_given_arguments_reach_every_download(tmp_path: Path) -> None:
    """The certificate is trusted by Debian and Java before anything is downloaded."""
    record = built(tmp_path, GIVEN)

    names = [line.split()[0] for line in record.splitlines() if line.split()[0] in PROGRAMS]
    assert names == ["update-ca-certificates", "keytool", "apt-get", "apt-get", "make"]
    certificate = tmp_path / "usr/local/share/ca-certificates/build.crt"
    assert certificate.read_text() == GIVEN["CA_CERTIFICATE"] + "\n"
    assert "[-file] [/usr/local/share/ca-certificates/build.crt]" in record
    assert (tmp_path / "etc/apt/debian.sources").read_text() == SOURCES.replace(
        "http://deb.debian.org/debian", GIVEN["DEBIAN_MIRROR"]
    )
    make = record.partition("\nmake ")[2]
    assert f"index {GIVEN['PIP_INDEX_URL']}\n" in make
    assert make.endswith(f"settings {GIVEN['IVY_SETTINGS_XML']}\n")


def test_without_arguments_nothing_differs_from_the_public_registries(tmp_path: Path) -> None:
    """An empty index or empty settings would be taken for one."""
    record = built(tmp_path, {})

    assert [line.split()[0] for line in record.splitlines() if line.split()[0] in PROGRAMS] == [
        "apt-get",
        "apt-get",
        "make",
    ]
    assert (tmp_path / "etc/apt/debian.sources").read_text() == SOURCES
    assert "[IVY_SETTINGS=]" in record
    assert record.partition("\nmake ")[2].endswith("index unset\n")


def test_each_argument_is_passed_by_compose_and_described() -> None:
    """Each stage that downloads declares them or begins from `packages`, which hands them on; the last stage has none."""
    named = {name for name, stage in arguments().items() if stage == "packages"}
    assert named == set(GIVEN)
    for service in filter(composed.is_ours, composed.load()["services"].values()):
        assert service["build"]["args"] == {name: f"${{{name}:-}}" for name in service["build"]["args"]}
        assert set(service["build"]["args"]) == named
    page = (ROOT / "docs" / "how-to" / "containers.md").read_text()
    for name in named:
        assert f"| `{name}` |" in page
        assert re.search(rf"--build-arg {name}=|^{name}=", page, re.MULTILINE), f"the page has no example of {name}"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_makefile_hands_the_arguments_to_uv_and_ivy(tmp_path: Path) -> None:
    """uv has a setting of its own for an index, which an empty argument leaves alone."""
    text = (ROOT / "Makefile").read_text()
    begin, end = text.index("ifdef PIP_INDEX_URL"), text.index("endif", text.index("ifdef PIP_INDEX_URL")) + 6
    (tmp_path / "Makefile").write_text(text[begin:end] + 'show:\n\t@echo "$${UV_DEFAULT_INDEX-unset}"\n')

    for index, shown in (("https://mirror.example/simple", "https://mirror.example/simple"), ("", "unset")):
        environment = {"PATH": os.environ["PATH"], "PIP_INDEX_URL": index}
        done = subprocess.run(["make", "-s", "show"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.stdout == f"{shown}\n", done.stderr
    assert "$(if $(IVY_SETTINGS),-settings $(IVY_SETTINGS))" in text
