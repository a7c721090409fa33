"""Build the image, run docker-compose.yml, kill Spark's master and a worker, and compare the results: `make test-containers`.

It needs a container engine with compose, so it is no part of CI: without an engine it reports that it did not run, and
fails. `result.md` next to this file has the last result. All that it starts has the project name `onlyonce-test`, with
secrets and volumes of its own, and is removed at the end.

ONLYONCE_ENGINE    the engine's program; by default `docker`, else `podman`
COMPOSE_FILE       read by compose itself: a second file may name other base images (tests/containers/stand_in.yml)

The arguments of docker/Dockerfile (mirrors, a certificate) are variables of docker-compose.yml.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from onlyonce.core.stored_names import stream_id
from onlyonce.local import processes
from onlyonce.local.airflow_api import Address, AirflowApi
from tests.spark.run.test_reference import FILES_A_BATCH, cut
from tests.support.platform import ROOT, Platform, free_port
from tests.support.reference import OF, compare

RESULT = Path(__file__).with_name("result.md")
HEAD = "# The containers, run\n\nMade by `make test-containers`.\n"
ENGINES = ("docker", "podman")
PROJECT = "onlyonce-test"
IMAGE = "onlyonce:local"
DATA = "/var/lib/onlyonce"
KILL = "kill -KILL $(cat /proc/1/task/1/children)"
"""Kill the program of a container, which the first process, the engine's init, outlives: so the restart policy acts."""
PATIENCE = 600


class DidNotRun(Exception):
    """No engine is here."""


@dataclass
class Run:
    """One run of the set-up in containers: the engine, the variables of compose, and what was measured."""

    engine: str
    folder: Path
    rows: list[tuple[str, float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Choose ports; only the runs that this test triggers shall start."""
        self.port, self.database = free_port(), free_port()
        self.env = self.folder / "env"
        self.variables = os.environ | {
            "AIRFLOW_PORT": str(self.port), "SPARK_UI_PORT": str(free_port()), "POSTGRES_PORT": str(self.database),
            "ONLYONCE_SCHEDULE": "0 0 29 2 *", "ONLYONCE_BACKFILL_INTERVAL": "0 0 29 2 *",
        }  # fmt: skip
        subprocess.run(["sh", str(ROOT / "docker" / "compose-env.sh"), str(self.env)], check=True, capture_output=True)
        lines = (line for line in self.env.read_text().splitlines() if not line.startswith("#"))
        self.secrets = dict(line.split("=", 1) for line in lines)

    def call(self, *words: str) -> str:
        """Run the engine and return what it prints. Raise AssertionError with its last lines if it fails."""
        done = subprocess.run(
            [self.engine, *words], cwd=ROOT, env=self.variables, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=3600,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        return done.stdout

    def compose(self, *words: str) -> str:
        """Run compose on this project."""
        return self.call("compose", "--project-name", PROJECT, "--env-file", str(self.env), *words)

    def inside(self, *words: str, service: str = "airflow-scheduler") -> str:
        """Run a command in a service's container."""
        return self.compose("exec", "-T", service, *words)

    def airflow(self) -> AirflowApi:
        """Return a session by the published port and the login in the file of secrets."""
        return AirflowApi(Address(f"http://127.0.0.1:{self.port}", "admin", self.secrets["ONLYONCE_AIRFLOW_PASSWORD"]))

    def platform(self, home: Path) -> Platform:
        """Return the platform with the database's published port and a copy of the volume `data`."""
        login = f"onlyonce_writer:{self.secrets['ONLYONCE_WRITER_PASSWORD']}@127.0.0.1:{self.database}"
        given = {"ONLYONCE_HOME": str(home), "ONLYONCE_DATABASE_URL": f"postgresql+psycopg2://{login}/onlyonce"}
        os.environ.update(given)
        return Platform(home, given, "onlyonce")

    def timed(self, name: str, step: Callable[[Run], str]) -> None:
        """Do a step; keep its seconds and its result."""
        print(f"containers: {name}", flush=True)
        begun = time.monotonic()
        said = step(self)
        self.rows.append((name, time.monotonic() - begun, said))
        print(f"containers: {name}: {self.rows[-1][1]:.0f} s {said}", flush=True)


def engine() -> str:
    """Return the engine's program. Raise DidNotRun if none answers with compose."""
    named = os.environ.get("ONLYONCE_ENGINE")
    for program in [named] if named else ENGINES:
        if not shutil.which(program):
            continue
        asked = (subprocess.run([program, *words], capture_output=True) for words in (["info"], ["compose", "version"]))
        if all(answer.returncode == 0 for answer in asked):
            return program
    raise DidNotRun(f"no container engine with compose answers ({named or ' or '.join(ENGINES)})")


# The steps, in their order.


def build(run: Run) -> str:
    """The image is built; its size and its layers."""
    run.compose("build", "--quiet", "spark-master")
    size = int(run.call("image", "inspect", "--format", "{{.Size}}", IMAGE))
    return f"{size / 1e9:.2f} GB"


def layers(run: Run) -> str:
    """The layers that have content, the last one first."""
    lines = run.call("history", "--no-trunc", "--format", "{{.Size}}\t{{.CreatedBy}}", IMAGE).splitlines()
    parts = (line.split("\t", 1) for line in lines)
    return "<br>".join(f"{size} `{step[:60].strip() or 'base'}`" for size, step in parts if size not in ("0B", "0 B"))


def up(run: Run) -> str:
    """Every service is healthy."""
    run.compose("up", "--detach", "--wait", "--wait-timeout", str(PATIENCE))
    return f"{len(run.compose('ps', '--quiet').split())} containers"


def log_in(run: Run) -> str:
    """The login works, and every DAG is parsed."""
    with run.airflow() as api:
        for name in OF:
            api.wait_for_dag(stream_id(name), PATIENCE)
        assert not api.import_errors(), api.import_errors()
        return f"{len(api.dags())} DAGs"


def feed(run: Run) -> str:
    """Both data sets, with re-deliveries."""
    for name in OF:
        run.inside("onlyonce", "feed", name, "--duplicates", "0.1", "--records", "12000")
    return "12,000 records each, a tenth delivered again"


def run_both(run: Run) -> str:
    """Both pipelines run in Airflow, to their ends; in mid-run the master is killed, then a worker."""
    log = run.platform(run.folder)
    at_kill: dict[str, str] = {}
    with run.airflow() as api:
        started = {}
        for name, service in zip(OF, ("spark-master", "spark-worker"), strict=True):
            started[name] = api.trigger(stream_id(name), {"close": True})
            processes.wait_until(partial(begun, log, name), PATIENCE, f"the first batch of {name}")
            at_kill[name] = api.run_state(stream_id(name), started[name])
            run.inside("sh", "-c", KILL, service=service)
        ends = {name: api.wait_for_run(stream_id(name), one) for name, one in started.items()}
        attempts = {
            name: max(int(task["try_number"]) for task in api.tasks(stream_id(name), one))
            for name, one in started.items()
        }
    assert set(at_kill.values()) == {"running"}, at_kill
    assert set(ends.values()) == {"success"}, ends
    run.compose("up", "--detach", "--wait", "--wait-timeout", str(PATIENCE), "--no-recreate")
    return "SIGKILL of master and worker; attempts: " + ", ".join(f"{name} {n}" for name, n in attempts.items())


def begun(log: Platform, name: str) -> bool:
    """Return whether a batch of a pipeline is in the log."""
    return not log.sql(f"SELECT 1 FROM onlyonce.batches WHERE pipeline = '{name}' LIMIT 1").empty


def compared(run: Run) -> str:
    """Every output is the oracle's, and every record has one fate."""
    home = run.folder / "home"
    run.compose("cp", f"airflow-scheduler:{DATA}", str(home))
    platform = run.platform(home)
    for name in OF:
        compare(platform, name, cut(list((home / "inbox" / name).glob("*.jsonl")), FILES_A_BATCH[name] or 1))
    return "equal"


def audit(run: Run) -> str:
    """The log and the data agree."""
    run.inside("onlyonce", "audit", "--data")
    return "exit code 0"


def operate(run: Run) -> str:
    """Pause, resume and stop reach Airflow from the scheduler's container, and `up` is refused there."""
    name, dag = "flights", stream_id("flights")
    with run.airflow() as api:
        for command, paused in (("pause", True), ("resume", False), ("stop", True), ("resume", False)):
            run.inside("onlyonce", command, name)
            found = next(one["is_paused"] for one in api.dags() if one["dag_id"] == dag)
            assert found is paused, f"after {command} the DAG is {'paused' if found else 'not paused'}"
    code = run.inside("sh", "-c", "onlyonce up > /dev/null 2>&1; echo $?").strip()
    assert code == "64", f"onlyonce up: {code}"
    return "pause, resume, stop; `up` is refused (64)"


STEPS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("build", build), ("layers", layers), ("up", up), ("log in", log_in), ("feed", feed), ("both pipelines", run_both),
    ("oracle", compared), ("audit", audit), ("pause, resume, stop", operate),
)  # fmt: skip


def main() -> int:
    """Return 0 if every step passed, 1 if one failed, 69 if no engine is here; print and store what happened."""
    try:
        found = engine()
    except DidNotRun as error:
        print(
            f"test-containers did not run: {error}\nnothing was built, started or stored\n"
            "install Docker 25 with Compose 2.24 or later, or name an engine (ONLYONCE_ENGINE), and run it again",
            file=sys.stderr,
        )
        return 69
    with tempfile.TemporaryDirectory(prefix="onlyonce-containers-") as made:
        run, tried, failure, name = Run(found, Path(made)), commit(), "", "set-up"
        try:
            for name, step in STEPS:
                run.timed(name, step)
        except Exception as error:
            failure = f"{name}: {error}"
            print(failure, run.compose("logs", "--tail", "30"), sep="\n", file=sys.stderr)
        finally:
            run.compose("down", "--volumes", "--timeout", "20")
    verdict = "FAILED" if failure else "passed"
    table = "".join(f"| {name} | {seconds:.0f} | {said} |\n" for name, seconds, said in run.rows)
    RESULT.write_text(
        f"{HEAD}\n{datetime.now(UTC):%Y-%m-%d}, commit {tried}, {version(run)}: {verdict}.\n\n"
        f"| step | seconds | result |\n|---|---|---|\n{table}" + (f"\n```\n{failure}\n```\n" if failure else "")
    )
    print(RESULT.read_text())
    return 1 if failure else 0


def version(run: Run) -> str:
    """Return the engine's name and version."""
    return f"{Path(run.engine).name} {run.call('version', '--format', '{{.Server.Version}}').strip()}"


def commit() -> str:
    """Return the short name of the commit that is checked out, and whether files differ from it."""
    words = ["git", "describe", "--always", "--dirty=, with changes", "--match=nothing"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
