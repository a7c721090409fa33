"""What must hold of docker-compose.yml. Each rule yields what is wrong; `RULES` has them by name.

They stand for an engine, which the machines that test this may not have. What only an engine shows (that the images are
there, that the services come up) they can't show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import metadata
from pathlib import PurePosixPath

from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema.validators import validator_for

from tests.compose.composed import (
    ROOT,
    VARIABLE,
    Compose,
    environment,
    filled,
    is_ours,
    mounts,
    one_shots,
    published,
    strings,
    written_by_compose_env,
)

# Published for amd64 and arm64, by their publishers' word.
MULTI_ARCH = {"postgres", "apache/kafka", "python", "eclipse-temurin"}
PINNED = re.compile(r"(?P<name>[\w./-]+):(?P<tag>v?\d[\w.-]*)@sha256:[0-9a-f]{64}")
# Not a folder or file that has to do with passwords, but one.
SECRET_KEY = re.compile(r"(PASSWORD|SECRET|SECRET_KEY|FERNET_KEY|TOKEN)$")
REQUIRED = re.compile(r"\$\{\w+:\?[^}]+\}")


def follows_the_schema(compose: Compose) -> Iterator[str]:
    """The official schema of compose files."""
    schema = get_builtin_schema("vendor.compose-spec")
    for error in validator_for(schema)(schema).iter_errors(compose):
        yield f"{error.json_path}: {error.message[:200]}"


def variables_are_known(compose: Compose) -> Iterator[str]:
    """A variable is a secret that compose-env writes, asked for without a default, or a setting with a default."""
    used = set()
    for place, text in strings(compose):
        for found in VARIABLE.finditer(text):
            name, secret = found["name"], found["name"] in written_by_compose_env()
            used.add(name)
            if secret and found["kind"] != "?":
                yield f"{place}: the secret {name} must have no default, and a word on how to get it"
            if not secret and found["kind"] != "-":
                yield f"{place}: nobody writes {name}, and it has no default"
        if "$" in VARIABLE.sub("", text).replace("$$", ""):
            yield f"{place}: a $ that is no ${{NAME}}"
    yield from (f"{name} is written by compose-env and used nowhere" for name in written_by_compose_env() - used)


def has_no_literal_secret(compose: Compose) -> Iterator[str]:
    """Passwords are variables in each place where one may stand: by a key's name, in a URL, in a connection."""
    for place, text in strings(compose):
        key = place.rsplit(".", 1)[-1]
        if SECRET_KEY.search(key) and not REQUIRED.fullmatch(text):
            yield f"{place}: a secret that is no variable"
        in_places = [
            *re.findall(r"://[^:/@\s]+:((?:\$\{[^}]*\}|[^@\s])+)@", text),
            *re.findall(r'"password": "([^"]*)"', text),
        ]
        yield from (f"{place}: a literal password" for found in in_places if not REQUIRED.fullmatch(found))
        if re.search(r"(?<!sha256:)\b[0-9a-f]{20,}\b|-----BEGIN", text):
            yield f"{place}: looks like a literal secret"


def mounts_exist(compose: Compose) -> Iterator[str]:
    """A mount is a declared volume or something in this checkout; no volume is declared in vain."""
    used = set()
    for name, service in compose["services"].items():
        for source, target in mounts(service):
            used.add(source)
            if "docker.sock" in source or not PurePosixPath(target).is_absolute():
                yield f"{name}: {source}:{target} may not be mounted"
            if source not in compose["volumes"] and not (source.startswith("./") and (ROOT / source).exists()):
                yield f"{name}: {source} is neither a declared volume nor in this checkout"
    yield from (f"the volume {volume} is mounted nowhere" for volume in set(compose["volumes"]) - used)


def drivers_and_executors_share_the_data(compose: Compose) -> Iterator[str]:
    """Who runs a driver or an executor has the data folder, at the one path that ONLYONCE_HOME names."""
    homes = {
        str(environment(s)["ONLYONCE_HOME"]) for s in compose["services"].values() if "ONLYONCE_HOME" in environment(s)
    }
    if len(homes) != 1:
        yield f"ONLYONCE_HOME is {sorted(homes)}"
    for name, service in compose["services"].items():
        works = name == "spark-worker" or "ONLYONCE_HOME" in environment(service)
        if works and ("data", *homes) not in mounts(service):
            yield f"{name}: the volume data is not at {sorted(homes)}"


def ports_are_distinct_and_local(compose: Compose) -> Iterator[str]:
    """A published port is open on the loopback address alone and taken once; of a service that is scaled there is
    none."""
    taken: dict[str, str] = {}
    for name, service in compose["services"].items():
        for parts in published(service):
            if len(parts) != 3 or parts[0] != "127.0.0.1":
                yield f"{name}: {':'.join(parts)} is open to other machines"
            if (port := parts[-2]) in taken:
                yield f"{name}: port {port} is {taken[port]}'s already"
            taken[port] = name
        if "scale" in service and ("ports" in service or "container_name" in service or "hostname" in service):
            yield f"{name}: the second of a scaled service would find its port or name taken"


def are_healthy_or_end(compose: Compose) -> Iterator[str]:
    """A service that stays has a health check; one that ends is not started again and again."""
    for name, service in compose["services"].items():
        check = dict(service.get("healthcheck") or {})
        if name in one_shots(compose):
            if not str(service.get("restart", "no")).startswith(("no", "on-failure")):
                yield f"{name}: it ends, and would be started for ever"
        elif not check.get("test") or check.get("disable") or check["test"] in (["NONE"], "NONE"):
            yield f"{name}: no health check"


def run_without_rights(compose: Compose) -> Iterator[str]:
    """No service is root, can become it, keeps a capability or has the machine's network."""
    for name, service in compose["services"].items():
        if str(service.get("user", "root")).split(":")[0] in ("root", "0"):
            yield f"{name}: runs as root"
        if service.get("cap_drop") != ["ALL"] or "no-new-privileges:true" not in service.get("security_opt", []):
            yield f"{name}: keeps rights that it does not need"
        if forbidden := {"privileged", "cap_add", "pid", "network_mode", "devices"} & set(service):
            yield f"{name}: {sorted(forbidden)}"


WRITES_INTO_ITSELF = {"kafka"}
"""Services whose image writes beside its volumes when it starts."""


def root_is_read_only(compose: Compose) -> Iterator[str]:
    """A service writes to its volumes and to file systems that go with it, unless the engine itself puts a file with a
    secret into it."""
    for name, service in compose["services"].items():
        if service.get("configs") or name in WRITES_INTO_ITSELF:
            if service.get("read_only"):
                yield f"{name}: it could not start"
        elif not service.get("read_only") or not any(place.startswith("/tmp:") for place in service.get("tmpfs", [])):
            yield f"{name}: its root file system can be written"


def wait_for_what_can_come(compose: Compose) -> Iterator[str]:
    """Who depends on a service says how far it must be; it is there, in no circle, and can become what is waited
    for."""
    services = compose["services"]
    for name, service in services.items():
        wanted = service.get("depends_on") or {}
        if not isinstance(wanted, dict):
            yield f"{name}: depends_on without conditions"
            continue
        for other, how in wanted.items():
            condition = how.get("condition")
            if other not in services:
                yield f"{name}: waits for {other}, which is no service"
            elif condition == "service_healthy" and not services[other].get("healthcheck"):
                yield f"{name}: waits for the health of {other}, which has no check"
            elif condition not in ("service_healthy", "service_completed_successfully"):
                yield f"{name}: {condition} says nothing of {other}"
            elif set(services[other].get("profiles", [])) - set(service.get("profiles", [])):
                yield f"{name}: waits for {other}, which is not started with it"
    try:
        TopologicalSorter({n: set(s.get("depends_on") or {}) for n, s in services.items()}).prepare()
    except CycleError as error:
        yield f"a circle: {error.args[1]}"


def images_are_pinned(compose: Compose) -> Iterator[str]:
    """An image from a registry has a version and a digest, and is made for both machines; ours is the one built
    here."""
    for name, service in compose["services"].items():
        image = str(service["image"])
        if is_ours(service):
            if image != "onlyonce:local":
                yield f"{name}: {image} is not the one built here"
            continue
        found = PINNED.fullmatch(image)
        if found is None:
            yield f"{name}: {image} is not pinned"
        elif found["name"] not in MULTI_ARCH or "platform" in service:
            yield f"{name}: {image} is not known to be made for amd64 and arm64"


def names_resolve(compose: Compose) -> Iterator[str]:
    """A host in a URL or connection is a service, this machine, or what the service itself listens on."""
    hosts = {*compose["services"], "127.0.0.1", "localhost", "0.0.0.0"}
    for place, text in strings(compose["services"]):
        found = re.findall(r"://(?:[^@/\s]*@)?([\w.-]+)[:/]", filled(text)) + re.findall(
            r'"host": "([\w.-]+)"', filled(text)
        )
        yield from (f"{place}: no service is named {host}" for host in set(found) - hosts)


def commands_reach_airflow(compose: Compose) -> Iterator[str]:
    """Where people run our commands, `pause` and `stop` have Airflow's address within the network, and its login."""
    found = environment(compose["services"]["airflow-scheduler"])
    if found.get("ONLYONCE_AIRFLOW_URL") != "http://airflow-api-server:8080":
        yield "airflow-scheduler: ONLYONCE_AIRFLOW_URL is not the API server's address between containers"
    if not {"ONLYONCE_AIRFLOW_USER", "ONLYONCE_AIRFLOW_PASSWORD"} <= {*found}:
        yield "airflow-scheduler: no login for Airflow"


def master_keeps_its_state(compose: Compose) -> Iterator[str]:
    """Spark's master keeps what it knows of runs on a volume, in a folder of the installed version of Spark."""
    service = compose["services"]["spark-master"]
    options = dict(re.findall(r"-D(\S+?)=(\S+)", filled(str(environment(service)["SPARK_MASTER_OPTS"]))))
    if options.get("spark.deploy.recoveryMode") != "FILESYSTEM":
        yield "spark-master: a master that is started again does not know its runs"
    folder = PurePosixPath(options.get("spark.deploy.recoveryDirectory", "."))
    if folder.name != metadata.version("pyspark"):
        yield f"spark-master: {folder} would be read by another version of Spark"
    if str(folder.parent) not in (target for _, target in mounts(service)):
        yield f"spark-master: {folder} is on no volume"


RULES: dict[str, Callable[[Compose], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        follows_the_schema, variables_are_known, has_no_literal_secret, mounts_exist, drivers_and_executors_share_the_data,
        ports_are_distinct_and_local, are_healthy_or_end, run_without_rights, root_is_read_only, wait_for_what_can_come, images_are_pinned,
        names_resolve, commands_reach_airflow, master_keeps_its_state,
    )
}  # fmt: skip
