"""Install the wheel as pip would, and run the tutorial's first commands: `make test-packaging`.

Two environments: the newest versions that the metadata allows today, and the lowest (`uv pip install --resolution
lowest-direct`). In each the jars are requested from the configured Maven repository by the versions that were
installed. Nothing is locked, so the network decides the result; `result.md` next to this file has the last one of each.
`python -m tests.packaging.check UV lowest-direct` runs one of the two.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULT = Path(__file__).with_name("result.md")
RESOLUTIONS = ("highest", "lowest-direct")
HEAD = "# The wheel, installed as pip would\n\nMade by `make test-packaging`.\n"
EXTRAS = ("--extra", "local", "--extra", "testing")
SHOWN = (
    "apache-airflow", "apache-airflow-providers-apache-spark", "pyspark", "pyspark-client", "delta-spark", "deltalake",
    "pyarrow", "numpy", "pandas", "sqlalchemy", "psycopg2-binary", "obstore", "pydantic-settings", "typer", "rich", "pytest",
)  # fmt: skip
COMMANDS = (
    "onlyonce init shop",
    "cd shop && onlyonce check shop",
    "cd shop && onlyonce up --no-airflow",
    "cd shop && onlyonce run shop",
    "cd shop && onlyonce sql 'select count(*) as hours, sum(records) as records from results.shop_per_hour'",
    "cd shop && python -m pytest -q",
    "cd shop && onlyonce down",
)


def main(uv: str, resolutions: Sequence[str]) -> int:
    """Return 0 if every command passed in each environment; print and store what happened."""
    with tempfile.TemporaryDirectory(prefix="onlyonce-packaging-") as made:
        place = Path(made)
        place.chmod(0o755)  # the embedded PostgreSQL runs under another account if this one is root
        built, wheel = f"{datetime.now(UTC):%Y-%m-%d}, commit {_commit()}", _build(place)
        tables = {resolution: _try(uv, wheel, built, resolution, place / resolution) for resolution in resolutions}
    known = {one.split("\n", 1)[0]: f"\n## {one.rstrip()}\n" for one in RESULT.read_text().split("\n## ")[1:]}
    known |= {resolution: text for resolution, (_, text) in tables.items()}
    RESULT.write_text(HEAD + "".join(known[resolution] for resolution in RESOLUTIONS))
    print(RESULT.read_text())
    return 0 if all(good for good, _ in tables.values()) else 1


def _build(place: Path) -> Path:
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(place)], cwd=ROOT, check=True, capture_output=True)
    [wheel] = place.glob("*.whl")
    return wheel


def _try(uv: str, wheel: Path, built: str, resolution: str, place: Path) -> tuple[bool, str]:
    """Install into an environment of its own and run the commands until one fails. Return the verdict and its table."""
    venv, work = place / "venv", place / "work"
    work.mkdir(parents=True)
    work.chmod(0o755)
    python = venv / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    # A wheel is one direct requirement, so `lowest-direct` would not reach its own: they are resolved from their
    # declaration.
    chosen = place / "requirements.txt"
    compiled = [
        uv,
        "pip",
        "compile",
        "--quiet",
        "--resolution",
        resolution,
        *EXTRAS,
        "-o",
        str(chosen),
        str(ROOT / "pyproject.toml"),
    ]
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        str(python),
        "-r",
        str(chosen),
        f"onlyonce-pipelines @ {wheel.as_uri()}",
    ]
    rows = [_run(f"resolve ({resolution})", compiled, work, dict(os.environ))]
    rows.append(_run("install", install, work, dict(os.environ)))
    if all(code == 0 for _, code, _, _ in rows):
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ONLYONCE_", "AIRFLOW"))},
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "ONLYONCE_HOME": str(place / "home"), "VIRTUAL_ENV": str(venv),
        }  # fmt: skip
        for command in COMMANDS:
            rows.append(_run(command, ["sh", "-c", command], work, environ))
            if rows[-1][1]:
                _run("down", ["sh", "-c", "cd shop && onlyonce down"], work, environ)
                break
    listed = subprocess.run(
        [uv, "pip", "list", "--python", str(python), "--format", "freeze"], capture_output=True, text=True, check=True
    )
    passed = all(code == 0 for _, code, _, _ in rows)
    return passed, _table(resolution, f"{built}: {'passed' if passed else 'FAILED'}", listed.stdout, rows)


def _run(name: str, command: list[str], folder: Path, environ: dict[str, str]) -> tuple[str, int, float, str]:
    begun = time.monotonic()
    print(f"packaging: {name}", flush=True)
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=1200
    )
    said = "" if done.returncode == 0 else (done.stdout + done.stderr)[-1500:]
    return name, done.returncode, time.monotonic() - begun, said


def _table(resolution: str, verdict: str, listed: str, rows: list[tuple[str, int, float, str]]) -> str:
    versions = dict(line.split("==", 1) for line in listed.splitlines() if "==" in line)
    shown = ", ".join(f"{name} {versions.get(name, 'missing')}" for name in SHOWN)
    lines = "".join(f"| `{name}` | {code} | {seconds:.0f} |\n" for name, code, seconds, _ in rows)
    failed = "".join(f"\n```text\n{said}\n```\n" for _, code, _, said in rows if code)
    head = f"\n## {resolution}\n\n{verdict}.\n\n"
    return f"{head}{shown}\n\n| command | exit code | seconds |\n|---|---|---|\n{lines}{failed}"


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).absolute()), sys.argv[2:] or RESOLUTIONS))
