"""docker-compose.yml as the engine sees it: loaded by compose-go, the loader of `docker compose` itself.

What tests/compose checks of the file, with merges and variables put in by its own few lines, the engine understands the
same.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compose import composed
from tests.support import go_programs

LOADER = Path(__file__).parent / "loader"
WHY = "docker-compose.yml is loaded by compose-go, which is Go"
SECONDS = {"h": 3600, "m": 60, "s": 1}
TIMES = ("interval", "timeout", "start_period", "start_interval")

Service = dict[str, Any]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that `make compose-env` writes."""
    file = tmp_path_factory.mktemp("compose") / "env"
    subprocess.run(["sh", str(composed.ENV_SCRIPT), str(file)], check=True, capture_output=True)
    return file


@pytest.fixture(scope="module")
def values(secrets: Path) -> dict[str, str]:
    """The secrets by name."""
    lines = [line for line in secrets.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def load(env: Path, file: Path = composed.FILE) -> subprocess.CompletedProcess[str]:
    """The loader's answer, right or wrong."""
    program = go_programs.built(LOADER, WHY)
    return subprocess.run([str(program), str(file), str(env)], capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def engine(secrets: Path) -> dict[str, Service]:
    """The services as the engine would start them."""
    done = load(secrets)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["services"])


@pytest.fixture(scope="module")
def ours(values: dict[str, str]) -> dict[str, Service]:
    """The services as tests/compose has them, secrets put in."""

    def put_in(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: put_in(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [put_in(inner) for inner in value]
        if not isinstance(value, str):
            return value
        text = composed.filled(value)
        for name, secret in values.items():
            text = text.replace(f"<{name}>", secret)
        return text

    return dict(put_in(composed.load()["services"]))


def seconds(said: str) -> int:
    """3m0s as 180."""
    total, number = 0, ""
    for sign in said:
        if sign.isdigit():
            number += sign
        else:
            total, number = total + int(number) * SECONDS[sign], ""
    return total


def test_the_engine_sees_the_services_that_the_rules_see(engine: dict[str, Service], ours: dict[str, Service]) -> None:
    """None is left out, each with its command, account, and every variable to the last sign."""
    assert engine.keys() == ours.keys()
    for name, service in ours.items():
        assert engine[name].get("command") == service.get("command"), name
        assert engine[name].get("user") == service.get("user"), name
        wanted = {key: None if value is None else str(value) for key, value in service.get("environment", {}).items()}
        assert (engine[name].get("environment") or {}) == wanted, name


def test_mounts_and_ports_are_those_that_the_rules_see(engine: dict[str, Service], ours: dict[str, Service]) -> None:
    """Every path in a container by its volume, every open port by its address."""
    for name, service in ours.items():
        mounted = [(one["source"], one["target"]) for one in engine[name].get("volumes") or []]
        assert mounted == composed.mounts(service), name
        opened = [[one["host_ip"], one["published"], str(one["target"])] for one in engine[name].get("ports") or []]
        assert opened == composed.published(service), name


def test_health_and_order_are_those_that_the_rules_see(engine: dict[str, Service], ours: dict[str, Service]) -> None:
    """What is asked and how often, and who waits for whom."""
    for name, service in ours.items():
        asked, wanted = engine[name].get("healthcheck") or {}, service.get("healthcheck") or {}
        assert (asked.get("test"), asked.get("retries")) == (wanted.get("test"), wanted.get("retries")), name
        for time in TIMES:
            assert seconds(asked.get(time, "")) == seconds(wanted.get(time, "")), f"{name}: {time}"
        waits = {other: how["condition"] for other, how in (engine[name].get("depends_on") or {}).items()}
        assert waits == {other: how["condition"] for other, how in (service.get("depends_on") or {}).items()}, name


def test_without_its_secrets_the_engine_says_what_to_run(tmp_path: Path, values: dict[str, str]) -> None:
    """A start before `make compose-env` is refused, and each missing secret is named with the command."""
    (tmp_path / "env").write_text("SPARK_WORKERS=3\n")
    done = load(tmp_path / "env")
    assert done.returncode == 1
    for name in values:
        assert f"required variable {name} is missing a value: run make compose-env" in done.stderr


def test_a_setting_in_the_env_file_takes_the_place_of_its_default(tmp_path: Path, secrets: Path) -> None:
    """Ports, sizes and the number of workers, beside the secrets."""
    settings = "POSTGRES_PORT=6000\nSPARK_WORKERS=5\nSPARK_EXECUTOR_MEMORY=2g\n"
    (tmp_path / "env").write_text(secrets.read_text() + settings)
    services = json.loads(load(tmp_path / "env").stdout)["services"]
    assert services["postgres"]["ports"][0]["published"] == "6000"
    assert services["spark-worker"]["scale"] == 5
    assert services["airflow-scheduler"]["environment"]["SPARK_EXECUTOR_MEMORY"] == "2g"


@pytest.mark.parametrize("old, new", [
    ("condition: service_healthy", "condition: service_well"),
    ("postgres: {condition", "postgre: {condition"),
    ("volumes: [postgres:", "volumes: [postgrs:"),
    ("stop_grace_period: 2m", "stop_grace_period: soon"),
])  # fmt: skip
def test_a_broken_file_is_refused(tmp_path: Path, secrets: Path, old: str, new: str) -> None:
    """The loader is one that can say no: to an unknown condition, service, volume, or time."""
    text = composed.FILE.read_text()
    assert old in text
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(text.replace(old, new, 1))
    assert load(secrets, broken).returncode == 1
