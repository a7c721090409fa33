"""docker-compose.yml keeps every rule, and each rule notices the mistake that it is for."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.compose import programs, rules
from tests.compose.composed import Compose, load

RULES = rules.RULES | programs.RULES

Mistake = Callable[[dict[str, Any]], object]


def _environment(service: str, **changed: str | None) -> Mistake:
    return lambda services: services[service]["environment"].update(changed)


def _set(service: str, **changed: Any) -> Mistake:
    return lambda services: services[service].update(changed)


def _without(service: str, key: str) -> Mistake:
    return lambda services: services[service].pop(key)


def _replaced(service: str, key: str, old: str, new: str) -> Mistake:
    """Text of one string of a service, or of each of a list."""

    def change(services: dict[str, Any]) -> None:
        value = services[service][key]
        assert old in str(value), f"{old} is not in {service}.{key}: the mistake would be none"
        services[service][key] = (
            [part.replace(old, new) for part in value] if isinstance(value, list) else value.replace(old, new)
        )

    return change


def _replaced_variable(service: str, variable: str, old: str, new: str) -> Mistake:
    """Text of one variable of a service."""
    return lambda services: _replaced("environment", variable, old, new)(services[service])


WRITER = "postgresql+psycopg2://onlyonce_writer:{}@postgres:5432/onlyonce"
CONNECTION = '{{"conn_type": "postgres", "host": "postgres", "login": "x", "password": "{}"}}'

MISTAKES: list[tuple[str, str, Mistake]] = [
    ("commands_reach_airflow", "the browser's address", _environment("airflow-scheduler", ONLYONCE_AIRFLOW_URL="http://127.0.0.1:8080")),
    ("follows_the_schema", "a key by another name", _set("postgres", enviroment={})),
    ("follows_the_schema", "a health check by another name", _set("postgres", healthcheck={"tests": ["CMD", "true"]})),
    ("variables_are_known", "a variable that nobody writes", _environment("setup", ONLYONCE_HOME="${ELSEWHERE}")),
    ("variables_are_known", "a default password", _environment("setup", ONLYONCE_AIRFLOW_PASSWORD="${ONLYONCE_AIRFLOW_PASSWORD:-admin}")),
    ("variables_are_known", "a secret that may be empty", _environment("setup", ONLYONCE_AIRFLOW_PASSWORD="${ONLYONCE_AIRFLOW_PASSWORD}")),
    ("variables_are_known", "a bare variable", _environment("setup", ONLYONCE_HOME="$HOME/data")),
    ("has_no_literal_secret", "a password", _environment("postgres", POSTGRES_PASSWORD="postgres")),
    ("has_no_literal_secret", "a password in a URL", _environment("setup", ONLYONCE_DATABASE_URL=WRITER.format("secret"))),
    ("has_no_literal_secret", "half a password in a URL", _environment("setup", ONLYONCE_DATABASE_URL=WRITER.format("a${X:?b}"))),
    ("has_no_literal_secret", "a password in a connection", _environment("setup", AIRFLOW_CONN_ONLYONCE_DB=CONNECTION.format("x"))),
    ("has_no_literal_secret", "a key", _environment("setup", AIRFLOW__API__SECRET_KEY="change me")),
    ("has_no_literal_secret", "a token by another name", _environment("kafka", CLUSTER="0123456789abcdef0123456789abcdef")),
    ("mounts_exist", "a folder that is not there", _set("postgres", volumes=["./postgres.conf:/etc/postgres.conf"])),
    ("mounts_exist", "a volume that is not declared", _set("kafka", volumes=["kafka-data:/var/lib/kafka/data"])),
    ("mounts_exist", "the engine's socket", _set("kafka", volumes=["/var/run/docker.sock:/var/run/docker.sock"])),
    ("mounts_exist", "a volume that nobody mounts", _without("kafka", "volumes")),
    ("drivers_and_executors_share_the_data", "a worker without the data", _set("spark-worker", volumes=["airflow:/tmp/a"])),
    ("drivers_and_executors_share_the_data", "at another path", _set("spark-worker", volumes=["data:/data"])),
    ("drivers_and_executors_share_the_data", "two homes", _environment("setup", ONLYONCE_HOME="/home")),
    ("ports_are_distinct_and_local", "open to all", _set("postgres", ports=["5432:5432"])),
    ("ports_are_distinct_and_local", "open on every address", _set("postgres", ports=["0.0.0.0:5432:5432"])),
    ("ports_are_distinct_and_local", "taken twice", _set("postgres", ports=["127.0.0.1:8080:5432"])),
    ("ports_are_distinct_and_local", "a port of a scaled service", _set("spark-worker", ports=["127.0.0.1:9999:8081"])),
    ("are_healthy_or_end", "no health check", _without("kafka", "healthcheck")),
    ("are_healthy_or_end", "one that is off", _set("kafka", healthcheck={"disable": True, "test": ["CMD", "true"]})),
    ("are_healthy_or_end", "one that ends is started again", _set("setup", restart="always")),
    ("run_without_rights", "no user", _without("postgres", "user")),
    ("run_without_rights", "root by number", _set("kafka", user="0:0")),
    ("run_without_rights", "capabilities", _without("spark-worker", "cap_drop")),
    ("run_without_rights", "privileged", _set("spark-worker", privileged=True)),
    ("run_without_rights", "the machine's network", _set("kafka", network_mode="host")),
    ("wait_for_what_can_come", "without conditions", _set("spark-worker", depends_on=["spark-master"])),
    ("wait_for_what_can_come", "a name that is no service", _set("setup", depends_on={"db": {"condition": "service_healthy"}})),
    ("wait_for_what_can_come", "only started", _set("setup", depends_on={"postgres": {"condition": "service_started"}})),
    ("wait_for_what_can_come", "a circle", _set("spark-master", depends_on={"airflow-scheduler": {"condition": "service_healthy"}})),
    ("root_is_read_only", "one that may be written", _without("airflow-api-server", "read_only")),
    ("root_is_read_only", "no place for temporary files", _without("postgres", "tmpfs")),
    ("root_is_read_only", "a file that an engine could not put in", _set("spark-master", read_only=True)),
    ("wait_for_what_can_come", "one of a profile", _set("setup", depends_on={"kafka": {"condition": "service_healthy"}})),
    ("wait_for_what_can_come", "health without a check", _without("postgres", "healthcheck")),
    ("images_are_pinned", "no digest", _set("postgres", image="postgres:18.4-bookworm")),
    ("images_are_pinned", "no version", _set("kafka", image="apache/kafka:latest@sha256:" + 64 * "0")),
    ("images_are_pinned", "one machine only", _set("kafka", platform="linux/amd64")),
    ("images_are_pinned", "an image for one machine", _set("kafka", image="somebody/kafka:4.1.2@sha256:" + 64 * "0")),
    ("images_are_pinned", "a reprocessed image of ours", _set("setup", image="onlyonce:0.0.9")),
    ("names_resolve", "a host that is no service", _environment("setup", ONLYONCE_MASTER="spark://master:7077")),
    ("names_resolve", "a database elsewhere", _environment("setup", AIRFLOW_CONN_ONLYONCE_DB='{"host": "db"}')),
    ("every_variable_is_read", "ours, misspelled", _environment("setup", ONLYONCE_SHEDULE="none")),
    ("every_variable_is_read", "Airflow's, of another section", _environment("setup", AIRFLOW__CORE__SQL_ALCHEMY_CONN="x")),
    ("every_variable_is_read", "a connection that nobody asks for", _environment("setup", AIRFLOW_CONN_SPARK="{}")),
    ("every_variable_is_read", "Spark's, misspelled", _environment("spark-worker", SPARK_WORKER_CORE="2")),
    ("every_variable_is_read", "PostgreSQL's, misspelled", _environment("postgres", POSTGRES_DATABASE="postgres")),
    ("every_variable_is_read", "Kafka's, misspelled", _environment("kafka", KAFKA_LOG_DIR="/var/lib/kafka/data")),
    ("every_command_is_there", "a module that is not there", _set("setup", command=["python", "-m", "onlyonce.local.provision"])),
    ("every_command_is_there", "a command of Airflow 2", _set("airflow-api-server", command=["airflow", "webserver"])),
    ("every_command_is_there", "a class of no Spark", _replaced("spark-worker", "command", "worker.Worker", "worker.Slave")),
    ("every_command_is_there", "a program that is not in the image", _set("spark-master", command=["start-master.sh"])),
    ("every_command_is_there", "another port than the check's", _replaced("spark-master", "command", "8080", "8090")),
    ("every_command_is_there", "the check of another", lambda s: s["spark-worker"].update(healthcheck=s["spark-master"]["healthcheck"])),
    ("postgres_is_as_the_embedded", "another setting", _replaced("postgres", "command", "jit=off", "jit=on")),
    ("postgres_is_as_the_embedded", "a setting less", lambda s: s["postgres"]["command"].pop()),
    ("postgres_is_as_the_embedded", "anybody inside is let in", _environment("postgres", POSTGRES_INITDB_ARGS="--encoding=UTF8")),
    ("postgres_is_as_the_embedded", "another version", _replaced("postgres", "image", "postgres:18.", "postgres:17.")),
    ("postgres_is_as_the_embedded", "jobs as superuser", _environment("setup", ONLYONCE_DATABASE_URL="postgresql+psycopg2://onlyonce_admin:x@postgres:5432/onlyonce")),
    ("airflow_is_as_the_embedded", "another setting", _environment("airflow-scheduler", AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL="600")),
    ("master_keeps_its_state", "no state", _replaced_variable("spark-master", "SPARK_MASTER_OPTS", "FILESYSTEM", "NONE")),
    ("master_keeps_its_state", "a state of another Spark", _replaced_variable("spark-master", "SPARK_MASTER_OPTS", "4.2.0", "4.1.0")),
    ("master_keeps_its_state", "a state in the container", _without("spark-master", "volumes")),
    ("connections_are_the_urls", "another master", _environment("airflow-scheduler", ONLYONCE_MASTER="local[*]")),
    ("connections_are_the_urls", "TLS for the shell only", _replaced_variable("airflow-scheduler", "ONLYONCE_DATABASE_URL", "prefer", "require")),
]  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> Compose:
    """The file as it is."""
    return load()


@pytest.mark.parametrize("rule", RULES)
def test_the_file_keeps_every_rule(compose: Compose, rule: str) -> None:
    """Nothing is wrong with the file by any rule."""
    assert list(RULES[rule](compose)) == []


@pytest.mark.parametrize(
    "rule, mistake", [(rule, mistake) for rule, _, mistake in MISTAKES], ids=[f"{r}: {m}" for r, m, _ in MISTAKES]
)
def test_each_mistake_is_noticed(compose: Compose, rule: str, mistake: Mistake) -> None:
    """A file with one mistake breaks the rule that is for it."""
    broken = deepcopy(compose)
    mistake(broken["services"])
    assert broken != compose
    assert list(RULES[rule](broken))


def test_each_rule_has_a_mistake() -> None:
    """No rule is there that was never seen to say no."""
    assert {rule for rule, _, _ in MISTAKES} == set(RULES)
