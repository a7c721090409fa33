"""Make the files of a new project from `templates/`, and write them if none of them exists."""

from __future__ import annotations

import json
import keyword
import os
import shutil
from collections.abc import Mapping
from datetime import timedelta
from importlib import metadata
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import NamedTuple

from onlyonce import settings
from onlyonce.api.declaration import check_name
from onlyonce.api.pipeline import Files, Output, Pipeline
from onlyonce.api.sinks import Postgres
from onlyonce.core import durations, line_values
from onlyonce.core.encodings import UTF_8
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed
from onlyonce.scaffold import sample as scaffold_sample
from onlyonce.scaffold.dialect import NOT_READ
from onlyonce.scaffold.sample import Sample, read_sample

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
DECLARATIONS = "pipelines.py"
SHOWN = 5
"""How many files of a folder an error names."""
COMMA = (
    "its numbers have a decimal comma and stay strings. In the function, null for what is no number: "
    'F.translate("{column}", ",. \\u00a0\\u202f", ".").try_cast("decimal(18,2)")'
)
NUMBERS = (
    "{why}: it stays a string. Correct them in the file; or in the function, null for what is no number: "
    'F.col("{column}").try_cast("double")'
)
UNITS = {timedelta(days=1): "day", timedelta(hours=1): "hour", timedelta(minutes=1): "minute"}


class _Text(Template):
    # A delimiter that the files themselves don't use: they have $ of make and compose, % and {} of Python.
    delimiter = "§"


class Made(NamedTuple):
    """The files of a new project, and what its user should know of them."""

    files: list[Path]
    remarks: list[str]


def make(name: str, folder: Path, source: Path | None) -> Made:
    """Write the project `name` into a folder of that name below `folder`.

    `source`: a sample of its input. Raise Refused, with nothing written, for a name that can't be one, a sample that
    can't be read, a folder that is not empty, and a folder of another project.
    """
    _check_name(name)
    _check_folder(folder, name)
    if source is not None:
        return _made(name, folder / name, source)
    with as_file(TEMPLATES / SAMPLE) as shipped:
        return _made(name, folder / name, shipped)


def _made(name: str, folder: Path, source: Path) -> Made:
    sample = read_sample(source)
    words = _words(name, sample)
    try:
        written = _write(folder, _texts(name, words), source)
    except PermissionError as error:
        raise Refused(
            f"{error.filename or folder} can't be written: {error.strerror}",
            data="no project was made; files that are there already stay as they are",
            hint="change to a folder in which this user may write, then run the command again",
        ) from error
    return Made(written, _remarks(name, sample, words))


def _check_folder(folder: Path, name: str) -> None:
    """Raise Refused for a folder in a project, and for a new folder that has files. Hidden files may be there."""
    for above in (folder, *folder.parents):
        own = [above / DECLARATIONS]
        own += above.glob(f"*/{DECLARATIONS}") if (above / "pyproject.toml").is_file() else []
        if found := next((file for file in own if file.is_file()), None):
            raise Refused(
                f"{folder} is in a project of onlyonce: {found}",
                data=NOT_READ,
                hint=f"leave the project's folder ({above}), then run onlyonce init {name} again; a further pipeline "
                f"of this project is declared in {found}",
            )
    new = folder / name
    if os.path.lexists(new) and not new.is_dir():
        raise Refused(f"{new} is there already, and is not a folder", data=NOT_READ, hint="choose another name")
    names = sorted(path.name for path in new.iterdir() if not path.name.startswith(".")) if new.is_dir() else []
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise Refused(
            f"{new} is not empty: {', '.join(names[:SHOWN])}{more}",
            data=f"{NOT_READ}; no file is ever replaced",
            hint="choose another name, or move these files away",
        )


def _remarks(name: str, sample: Sample, words: Mapping[str, str]) -> list[str]:
    times = sample.times(words["event_time"])
    window = scaffold_sample.window(times)
    found = [f"inbox/{sample.name.lstrip('.')} is a copy of the sample: the first run takes it in"]
    if sample.misfits:
        found.append(
            f"{sample.misfits} of {sample.misfits + len(sample.rows)} records of the sample have no time in "
            f"{words['event_time']}: the first run finds them invalid, and onlyonce invalid {name} shows them"
        )
    if sample.aliases:
        names = ", ".join(f"{named!r} as {column}" for column, named in sample.aliases.items())
        found.append(f"declared under other names (aliases): {names}")
    if scaffold_sample.span(times) <= (int(words["delay"]) + 1) * window:
        found.append(
            f"no window of the sample closes by itself within watermark_delay: onlyonce run {name} --close writes them"
        )
    if sample.null:
        named = " and ".join(map(repr, sample.null)) + (" is" if len(sample.null) == 1 else " are")
        also = f", in {', '.join(sample.nulls_in)} too: leave a word out of null= if it is a value there"
        found.append(f"{named} null in this file{also * bool(sample.nulls_in)}")
    found += [_code_page(sample)] if sample.encoding != UTF_8 else []
    return found + _numbers(sample)


def _numbers(sample: Sample) -> list[str]:
    """Return what is said of each column of numbers that stays a string."""
    return [
        *(f"{column}: {COMMA.format(column=column)}" for column in scaffold_sample.decimal_commas(sample)),
        *(
            f"{column}: {NUMBERS.format(column=column, why=why)}"
            for column, why in scaffold_sample.nearly_numbers(sample).items()
        ),
    ]


def _code_page(sample: Sample) -> str:
    cells = (str(cell) for row in [sample.aliases, *sample.rows] for cell in row.values() if cell is not None)
    letters = next((cell for cell in cells if not cell.isascii()), "")
    return (
        f"the file is not UTF-8, and is declared as {sample.encoding} (Western Europe), a guess by which it has "
        f"{line_values.shown(letters)!r}: if that is wrong, name its own code page of Windows in encoding="
    )


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


def _texts(name: str, words: Mapping[str, str]) -> dict[str, str]:
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
    window = scaffold_sample.window(sample.times(time.columns[0]))
    unit, behind = UNITS[window], scaffold_sample.disorder(sample.once().times(time.columns[0]))
    delay = max(1, -(-behind // window))
    columns = [f"{column} {kind}" for column, kind in sample.columns.items()]
    _refuse_what_no_declaration_takes(name, sample, columns, record.columns, time.columns[0])
    options = f', format="{sample.format}"' if sample.format != "json" else ""
    options += f", delimiter={json.dumps(sample.delimiter)}" if sample.delimiter != "," else ""
    options += f", encoding={json.dumps(sample.encoding)}" if sample.encoding != UTF_8 else ""
    words = ", ".join(map(json.dumps, sample.null))
    options += f", null={f'({words})' if len(sample.null) > 1 else words}" if words else ""
    return {
        "name": name,
        "upper": name.upper(),
        "unit": unit,
        "delay": str(delay),
        "far": str(delay + 8),
        "delay_reason": f"no record of the sample is more than {durations.in_words(behind)} older than one before it"
        if behind
        else "the sample is in the order of its times",
        "numbers": "".join(f"    # {one}\n" for one in _numbers(sample)),
        "version": metadata.version("onlyonce-pipelines"),
        "options": options + (", header=True" if sample.header else ""),
        "schema": "\n".join(f'        "{column}"' for column in [*(f"{one}, " for one in columns[:-1]), columns[-1]]),
        "aliases": "    # Columns are in lower snake case; the file calls these so.\n    "
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
        source=Files(
            format=sample.format,  # type: ignore[arg-type]
            header=sample.header,
            delimiter=sample.delimiter,
            encoding=sample.encoding,
            null=sample.null,
        ),
        schema=", ".join(columns),
        record_id=record_id,
        event_time=event_time,
        outputs=(output,),
        aliases=sample.aliases,
        formats=sample.formats,
    )


IMAGE_OF_ONLYONCE = """  build:
    context: .
    dockerfile: docker/Dockerfile
    args:
      DEBIAN_MIRROR: ${DEBIAN_MIRROR:-}
      PIP_INDEX_URL: ${PIP_INDEX_URL:-}
      IVY_SETTINGS_XML: ${IVY_SETTINGS_XML:-}
      CA_CERTIFICATE: ${CA_CERTIFICATE:-}
"""
"""How the compose file builds the image. A project builds its own upon it."""


def _in_containers(name: str) -> dict[str, str]:
    """Return the parts of the shipped compose file that differ in a project."""
    return {
        "name: onlyonce\n": f"name: {name}\n",
        "  image: onlyonce:local\n": f"  image: {name}:0.1.0\n",
        IMAGE_OF_ONLYONCE: "  build: {context: .}\n",
        "${ONLYONCE_PIPELINES:-/opt/onlyonce/jobs/pipelines.py}": f"/opt/{name}/{name}/pipelines.py\n  # Empty: "
        f"inbox/{name} in the volume.\n  {name.upper()}_INBOX: ''",
        "AIRFLOW__CORE__DAGS_FOLDER: /opt/onlyonce/dags": f"AIRFLOW__CORE__DAGS_FOLDER: /opt/{name}/dags",
    }


def _write(folder: Path, texts: dict[str, str], sample: Path) -> list[Path]:
    inbox = folder / "inbox" / sample.name.lstrip(".")
    wanted = [*(folder / place for place in texts), inbox]
    if there := [path for path in wanted if os.path.lexists(path)]:  # a hidden file, or a link to nothing
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
