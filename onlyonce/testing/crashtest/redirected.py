"""A pipeline whose every place to read or write is moved into a scratch folder, so that a crash test touches no other.

What would be sent outside (a webhook, Kafka) stays in the scratch platform's outbox, as nothing there delivers.

The file that `file_for` writes is a file with declarations like the user's own, and loads that one. The function of an
output is left as it is: what it reads or writes beside its rows is not held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Delta, Files, FileSink, Iceberg, MySQL, Pipeline, Postgres
from onlyonce.model.errors import Refused

TEXT = """from onlyonce.testing.crashtest.redirected import pipeline

PIPELINES = [pipeline({name!r}, {files!r}, {inbox!r})]
"""


def pipeline(name: str, files: Sequence[str], inbox: str) -> Pipeline:
    """The pipeline of that name, reading `inbox` and writing to default places. Raises Refused as `check` does."""
    found = declarations.one(name, [Path(file) for file in files])
    check(found)
    outputs = tuple(
        replace(output, sink=replace(output.sink, path=None)) if isinstance(output.sink, Delta | FileSink) else output
        for output in found.outputs
    )
    assert isinstance(found.source, Files)  # others are refused
    return replace(found, source=replace(found.source, inbox=inbox), outputs=outputs)


def check(found: Pipeline) -> None:
    """Raises Refused for a source that can't be copied, where nothing but whole files is known to be, and for a sink
    that can't be moved."""
    if not isinstance(found.source, Files):
        raise Refused(
            f"pipeline {found.name}: its source is "
            f"{'one of several' if found.sources else type(found.source).__name__}; a crash test reads a copy of "
            "files",
            data="nothing was read or written",
            hint="declare the same outputs over Files() in a file of its own, and give its input as --input",
        )
    for output in found.outputs:
        if isinstance(output.sink, MySQL | Iceberg):
            other = (
                "MySQL, and a crash test has no server of it"
                if isinstance(output.sink, MySQL)
                else "an Iceberg catalog, and a crash test has none"
            )
            raise Refused(
                f"pipeline {found.name}: output {output.name} writes to {other} to write to instead",
                data="nothing was read or written",
                hint="declare the same output with Postgres(…) or Delta(…) in a file of its own: the function is "
                "what is tested",
            )


def connections(found: Pipeline) -> list[str]:
    """The environment variables of its sinks' databases; in a crash test each names a scratch database."""
    sinks = [output.sink for output in found.outputs]
    return sorted({s.connection for s in sinks if isinstance(s, Postgres) and s.connection})


def file_for(name: str, files: Sequence[Path], inbox: Path, folder: Path) -> Path:
    """Write the file with the moved pipeline; gives its path."""
    # A folder of its own: it comes onto the path of modules, where nothing else may be found.
    folder.mkdir(parents=True)
    path = folder / "onlyonce_crashtest.py"
    path.write_text(TEXT.format(name=name, files=[str(file.resolve()) for file in files], inbox=str(inbox)))
    return path
