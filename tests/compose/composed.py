"""docker-compose.yml as the tests see it: loaded, its variables found, and put in as an engine would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"

# ${NAME}, ${NAME:-default}, ${NAME:?what to do when it is missing}
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")
ENV_SCRIPT = ROOT / "docker" / "compose-env.sh"

Compose = dict[str, Any]


def load() -> Compose:
    """The file, anchors and merges put in; variables as they are written."""
    return dict(yaml.safe_load(FILE.read_text()))


@cache
def written_by_compose_env() -> frozenset[str]:
    """The names of the secrets that `make compose-env` writes."""
    return frozenset(re.findall(r'echo "(\w+)=', ENV_SCRIPT.read_text()))


def strings(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every string in the file with its place, as in services.kafka.environment.KAFKA_NODE_ID."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from strings(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from strings(inner, f"{place}.{number}")
    elif isinstance(value, str):
        yield place, value


def filled(text: Any) -> str:
    """A string with its defaults put in; a secret becomes its name in angle brackets."""
    return VARIABLE.sub(lambda m: m["rest"] if m["kind"] == "-" else f"<{m['name']}>", str(text))


def environment(service: dict[str, Any]) -> dict[str, Any]:
    """The variables of a service."""
    return dict(service.get("environment") or {})


def is_ours(service: dict[str, Any]) -> bool:
    """Whether the service runs the image that docker/Dockerfile makes."""
    return "build" in service


def one_shots(compose: Compose) -> set[str]:
    """The services whose end others wait for."""
    return {
        name
        for service in compose["services"].values()
        for name, how in dict(service.get("depends_on") or {}).items()
        if how == {"condition": "service_completed_successfully"}
    }


def mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """Source and target of each mount."""
    return [(parts[0], parts[1]) for parts in (str(volume).split(":") for volume in service.get("volumes") or [])]


def published(service: dict[str, Any]) -> list[list[str]]:
    """Each published port in its parts: address, port of this machine, port of the container."""
    return [filled(port).split(":") for port in service.get("ports") or []]
