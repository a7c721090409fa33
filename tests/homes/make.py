"""Make the home of this version's format, and freeze what the format describes: `python -m tests.homes.make`.

The home of a released format is never made again: later versions must open the one that an earlier version has made.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sqlalchemy.engine import make_url

from onlyonce import settings
from onlyonce.database import statements
from onlyonce.database.connect import forget_connections
from onlyonce.local import postgres
from onlyonce.sinks.outbox import deliver
from onlyonce.testing import scratch
from tests.homes import oracle
from tests.homes.frozen import HOMES, freeze
from tests.support import jvm
from tests.support.endpoints import Endpoint
from tests.support.platform import ROOT, Platform

DUMPED = ("onlyonce", "onlyonce_private", "results")
FOLDERS = ("data", "tables", "inbox", "format")
LOG = "log/app.log"
NOWHERE = "http://127.0.0.1:1"
FLOOR = "UPDATE onlyonce_private.pipelines SET gc_floor = {} WHERE instance = 'shop' RETURNING 1"


def main() -> None:
    """Make the home, unless it is that of a released format."""
    at = HOMES / statements.FORMAT
    released = subprocess.run(["git", "tag", "--list", "v*"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    if at.exists() and released:
        sys.exit(
            f"format {statements.FORMAT} is released ({released[0]}): a change of what is stored needs a new format"
        )
    at.mkdir(exist_ok=True)
    with scratch.server("onlyonce-homes-") as server, tempfile.TemporaryDirectory() as folder:
        platform = Platform.make(server, Path(folder) / "made", "tests/homes/pipelines.py")
        with settings.within(platform.environment | {"TEST_ENDPOINT": NOWHERE}):
            spark = jvm.session("homes")
            try:
                make(platform)
            finally:
                spark.stop()
                forget_connections()
        keep(platform, at)
    (at / "expected.json").write_text(
        json.dumps({"later": oracle.LATER} | oracle.expected(), indent=1, sort_keys=True) + "\n"
    )
    freeze(at)


def make(platform: Platform) -> None:
    """Bring a platform to where each kind of stored state is there."""
    _put(platform, "shop/0.jsonl", "shop/1.jsonl", "ids/0.jsonl", "places/0.jsonl")
    _append(platform, oracle.lines(oracle.LOG[0]))
    platform.run("shop")
    platform.run("ids")
    platform.run("places")
    platform.run("log", "--close")
    _deliver()

    second = oracle.lines(oracle.LOG[1])
    _append(platform, second[:-1], second[-1][: oracle.HALF])
    platform.run("log")
    platform.sql(FLOOR.format(2**40))
    _put(platform, "shop/2.jsonl")
    platform.run("shop")
    platform.sql(FLOOR.format(0))

    _put(platform, "ids/1.jsonl")
    _kill(platform, "staging-after-write", "ids")
    _put(platform, "shop/3.jsonl")
    _kill(platform, "receive-unit-after-commit", "shop")
    _put(platform, "shop/4.jsonl")
    _check(platform)


def _check(platform: Platform) -> None:
    """Check that the home has what it is made for."""
    [begun] = platform.sql(
        "SELECT incarnation, batch FROM onlyonce.batches WHERE state = 'begun' AND query = 'receive'"
    ).values
    units = platform.sql(f"SELECT 1 FROM onlyonce.commits WHERE incarnation = '{begun[0]}' AND batch = {begun[1]}")
    assert len(units) == 1
    [output] = platform.sql("SELECT query FROM onlyonce.batches WHERE state = 'begun' AND query <> 'receive'")["query"]
    assert output == "staged"
    states = platform.sql("SELECT state, count(*)::int AS rows FROM onlyonce.outbox GROUP BY 1").set_index("state")[
        "rows"
    ]
    assert states["waiting"] == len(oracle.LOG[1]) - 1
    assert list((platform.home / "data").glob("**/staged/staged/*/_delta_log"))


def _put(platform: Platform, *names: str) -> None:
    for name in names:
        pipeline, file = name.split("/")
        platform.put(pipeline, file, list(oracle.PUT[name]))


def _append(platform: Platform, whole: list[str], half: str = "") -> None:
    path = platform.home / "inbox" / LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in whole) + half)


def _kill(platform: Platform, point: str, pipeline: str) -> None:
    platform.end_sessions()
    code, output = platform.run_killed(point, pipeline, master="local[1]")
    assert code < 0, f"{point} was not passed:\n{output[-3000:]}"
    print("killed", pipeline, "at", point, flush=True)


def _deliver() -> None:
    with Endpoint() as endpoint, settings.within({"TEST_ENDPOINT": endpoint.url}):
        deliver.main(["log"])
    assert sorted(endpoint.ids().elements()) == oracle.expected()["sent before"]


def keep(platform: Platform, at: Path) -> None:
    """Store the database and the folders of a platform, by the commands of docs/how-to/backup-restore-upgrade.md."""
    dump = ["pg_dump", "--no-owner", *(f"--schema={name}" for name in DUMPED)]
    (at / "log.sql.xz").write_bytes(lzma.compress(_told(dump, platform), preset=9))
    pack = ["tar", "--format=posix", "-C", str(platform.home), "-cf", "-", *FOLDERS]
    (at / "home.tar.xz").write_bytes(lzma.compress(_told(pack, platform), preset=9))
    print(*(f"{path.name}: {path.stat().st_size} bytes" for path in sorted(at.iterdir())), sep="\n")


def _told(command: list[str], platform: Platform) -> bytes:
    return subprocess.run(
        command, env=client_environment(platform.environment["ONLYONCE_DATABASE_URL"]), capture_output=True, check=True
    ).stdout


def client_environment(url: str) -> dict[str, str]:
    """Return the environment in which PostgreSQL's own programs find a database."""
    place = make_url(url)
    return os.environ | {
        "PGHOST": str(place.host), "PGPORT": str(place.port), "PGUSER": str(place.username),
        "PGPASSWORD": str(place.password), "PGDATABASE": str(place.database),
        "PATH": f"{postgres._installed()}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip


if __name__ == "__main__":
    main()
