"""Make the files of a new project from `templates/`, and write them if none of them exists."""

from __future__ import annotations

import json
import keyword
import os
import shutil
from datetime import timedelta
from importlib import metadata
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from onlyonce import settings
from onlyonce.api.declaration import check_name
from onlyonce.api.pipeline import Files, Output, Pipeline
from onlyonce.api.sinks import Postgres
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed
from onlyonce.scaffold import sample as scaffold_sample
from onlyonce.scaffold.sample import NOT_READ, Sample, read_sample

TEMPLATES = files("onlyonce.scaffold") / "templates"
PLACES = {
    "pipelines.py": "{name}/pipelines.py",
    "transforms.py": "{name}/transforms.py",
    "test_transforms.py": "tests/test_transforms.py",
    "dags.py": "dags/{name}_dags.py",
    "pyproject.toml": "pyproject.toml",
    "Makefile": "Makefile",
    "Dockerfile": "Dockerfile",
    "dockerignore": ".dockerignore",
    "gitignore": ".gitignore",
    "README.md": "README.md",
}
"""Where each template is written, below the project's folder."""
SAMPLE = "sales.jsonl"
"""The input of a project that is made without a sample."""
UNITS = {timedelta(days=1): "day", timedelta(hours=1): "hour", timedelta(minutes=1): "minute"}


class _Text(Template):
    # A delimiter that the files themselves don't use: they have $ of make and compose, % and {} of Python.
    delimiter = "§"


def make(name: str, folder: Path, source: Path | None) -> list[Path]:
    """Write the project `name` into a folder of that name below `folder`; return the files.

    `source`: a sample of its input. Raise Refused, with nothing written, for a name that can't be one, a sample that
    can't be read, and a file that exists.
    """
    _check_name(name)
    if source is not None:
        return _write(folder / name, _texts(name, read_sample(source)), source)
    with as_file(TEMPLATES / SAMPLE) as shipped:
        return _write(folder / name, _texts(name, read_sample(shipped)), shipped)


def _check_name(name: str) -> None:
    check_name("project", name)
    found = find_spec(name) if not keyword.iskeyword(name) else None
    if (
        keyword.iskeyword(name)
        or name in ("tests", "dags", "inbox")
        or (found is not None and found.origin is not None)
    ):
        raise Refused(
            f"a project can't be named {name}: Python, a package that is installed, or a folder of the project has "
            "that name",
            data=NOT_READ,
            hint=f"choose another, like {name}_pipelines",
        )


def _texts(name: str, sample: Sample) -> dict[str, str]:
    words = _words(name, sample)
    texts = {
        place.format(name=name): _Text((TEMPLATES / f"{template}.template").read_text("utf-8")).substitute(words)
        for template, place in PLACES.items()
    }
    # In a checkout these two are links to the platform's own, in a wheel copies.
    compose = (TEMPLATES / "docker-compose.yml").read_text("utf-8")
    for old, new in _in_containers(name).items():
        assert compose.count(old) == 1, old
        compose = compose.replace(old, new)
    secrets = (TEMPLATES / "compose-env.sh").read_text("utf-8").replace("docker/compose-env.sh", "compose-env.sh")
    return {**texts, f"{name}/__init__.py": "", "docker-compose.yml": compose, "compose-env.sh": secrets}


def _words(name: str, sample: Sample) -> dict[str, str]:
    time, record = scaffold_sample.event_time(sample), scaffold_sample.record_id(sample)
    unit = UNITS[scaffold_sample.window(sample.times(time.columns[0]))]
    columns = [f"{column} {kind}" for column, kind in sample.columns.items()]
    _refuse_what_no_declaration_takes(name, sample, columns, record.columns, time.columns[0])
    options = f', format="{sample.format}"' if sample.format != "json" else ""
    return {
        "name": name,
        "upper": name.upper(),
        "unit": unit,
        "version": metadata.version("onlyonce-pipelines"),
        "options": options + (", header=True" if sample.header else ""),
        "schema": "\n".join(f'        "{column}"' for column in [*(f"{one}, " for one in columns[:-1]), columns[-1]]),
        "aliases": "    # What the file calls them.\n    "
        f"aliases={json.dumps(dict(sample.aliases), ensure_ascii=False)},\n"
        if sample.aliases
        else "",
        "formats": "    # How it writes these times, in UTC unless the form has %z: a guess from the sample.\n    "
        f"formats={json.dumps(dict(sample.formats))},\n"
        if sample.formats
        else "",
        "record_id": _tuple(record.columns),
        "id_reason": record.reason,
        "event_time": time.columns[0],
        "time_reason": time.reason,
        **_of_test(sample, record.columns, time.columns[0]),
    }


def _of_test(sample: Sample, record_id: tuple[str, ...], event_time: str) -> dict[str, str]:
    """Return the record that the project's test makes of a number and a time, and the expected fates.

    The test has four records, two of them the same.
    """
    values = dict.fromkeys((*record_id, event_time), "time")
    for name in record_id:
        if sample.columns[name] != "timestamp":
            values[name] = "str(number)" if sample.columns[name] == "string" else "number"
    row = ", ".join(f'"{name}": {value}' for name, value in values.items())
    if not record_id:
        return {"row": row, "counts": "twice: a record is its place", "per_window": "[3, 1]", "fates": "(4, 0)"}
    return {"row": row, "counts": "once", "per_window": "[2, 1]", "fates": "(3, 1)"}


def _tuple(columns: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{column}"' for column in columns)
    return f"({quoted},)" if len(columns) == 1 else f"({quoted})"


def _refuse_what_no_declaration_takes(
    name: str, sample: Sample, columns: list[str], record_id: tuple[str, ...], event_time: str
) -> None:
    """Make the declaration as its file will make it, so that a refusal comes now."""
    output = Output(
        name="counts", transform="m:f", window=Fixed(timedelta(hours=1)), sink=Postgres(table=f"results.{name}")
    )
    Pipeline(
        name=name,
        source=Files(format=sample.format, header=sample.header),  # type: ignore[arg-type]
        schema=", ".join(columns),
        record_id=record_id,
        event_time=event_time,
        outputs=(output,),
        aliases=sample.aliases,
        formats=sample.formats,
    )


def _in_containers(name: str) -> dict[str, str]:
    """Return the parts of the shipped compose file that differ in a project."""
    return {
        "name: onlyonce\n": f"name: {name}\n",
        "  image: onlyonce:local\n": f"  image: {name}:0.1.0\n",
        "build: {context: ., dockerfile: docker/Dockerfile}": "build: {context: .}",
        "${ONLYONCE_PIPELINES:-/opt/onlyonce/jobs/pipelines.py}": f"/opt/{name}/{name}/pipelines.py\n  # Empty: "
        f"inbox/{name} in the volume.\n  {name.upper()}_INBOX: ''",
        "AIRFLOW__CORE__DAGS_FOLDER: /opt/onlyonce/dags": f"AIRFLOW__CORE__DAGS_FOLDER: /opt/{name}/dags",
    }


def _write(folder: Path, texts: dict[str, str], sample: Path) -> list[Path]:
    inbox = folder / "inbox" / sample.name.lstrip(".")
    wanted = [*(folder / place for place in texts), inbox]
    if there := [path for path in wanted if os.path.lexists(path)]:
        raise Refused(
            f"{there[0]} is there already",
            data="nothing was written; no file is ever replaced",
            hint="choose another name, or another folder to work in",
        )
    for place, text in texts.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    inbox.parent.mkdir(mode=settings.PRIVATE, exist_ok=True)
    shutil.copyfile(sample, inbox)
    return wanted
