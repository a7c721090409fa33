"""What the page of the containers says to type fits docker-compose.yml."""

from __future__ import annotations

import re

from tests.compose.composed import ROOT, load, mounts, published, written_by_compose_env

SECTION = (ROOT / "docs" / "how-to" / "containers.md").read_text()


def test_each_copy_is_of_a_volume_where_it_is_mounted() -> None:
    """Back-up and restore take each volume that holds data, by a service and at the path that it is mounted at."""
    services = load()["services"]
    copies = re.findall(
        r"--entrypoint tar (\S+)(?: --format=posix)? -C (\S+) -(c|x)f - \.? ?[<>] backup/(\w+)\.tar", SECTION
    )
    assert sorted((volume, way) for _, _, way, volume in copies) == [
        ("data", "c"), ("data", "x"), ("postgres", "c"), ("postgres", "x"),
    ]  # fmt: skip
    for service, path, _, volume in copies:
        assert (volume, path) in mounts(services[service])


def test_each_name_is_there() -> None:
    """Services, variables, ports and profiles that the section names are those of the file."""
    text, services = (ROOT / "docker-compose.yml").read_text(), load()["services"]
    for service in re.findall(r"(?:exec|--scale) ([a-z-]+)", SECTION):
        assert service in services
    for variable in re.findall(r"`(?!ONLYONCE_HOME)([A-Z_]{6,})(?:=[^`]*)?`", SECTION):
        assert variable in text or variable in written_by_compose_env()
    ports = {parts[1] for service in services.values() for parts in published(service)}
    addresses = SECTION.split("*Addresses*")[1].split("*Workers.*")[0]
    assert set(re.findall(r"\b\d{4,5}\b", addresses)) == ports - {"9094"}
    profiles = {profile for service in services.values() for profile in service.get("profiles", [])}
    assert set(re.findall(r"--profile (\w+)", SECTION)) == profiles
