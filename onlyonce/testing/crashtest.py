"""The crash test of a pipeline: an undisturbed run over a copy of its input, then runs with kills at every step.

All must have the same results. The pipeline's every place to read or write is moved into a scratch folder. What would
be sent outside (a webhook, Kafka) stays in the scratch platform's outbox, as nothing there delivers. The function of an
output is left as it is: what it reads or writes apart from its rows is not held back.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Files, Output, Pipeline, unknown
from onlyonce.core.errors import InvariantBroken, OnlyonceError, Refused, Retryable
from onlyonce.core.locations import Url
from onlyonce.core.runs import Report
from onlyonce.core.triggers import AfterAny, AfterRecords, AfterTime
from onlyonce.environment import variable
from onlyonce.sources import folders
from onlyonce.tables import stores
from onlyonce.testing import crash_results, scratch
from onlyonce.testing.crash_results import Asked, Chain, Difference, Played, Queue, Strike, report

TEXT = """from onlyonce.testing.crashtest import pipeline

PIPELINES = [pipeline({name!r}, {files!r}, {inbox!r})]
"""


def pipeline(name: str, files: Sequence[str], inbox: str) -> Pipeline:
    """Return the pipeline of that name, reading `inbox` and writing to default places.

    Raise Refused as `check` does.
    """
    found = declarations.one(name, [Path(file) for file in files])
    check_redirected(found)
    outputs = tuple(map(_redirected, found.outputs))
    assert isinstance(found.source, Files)  # others are refused
    return replace(found, source=replace(found.source, inbox=inbox), outputs=outputs)


def _redirected(output: Output) -> Output:
    """Return the output with its default place. Panes that stay come with each batch if they would come by the clock.

    Two runs begin their batches at other times. So by the clock they would write other panes, and each of them a file,
    or rows with another number.
    """
    if (output.sink.writes_files or output.pane_column) and isinstance(output.panes, AfterTime | AfterAny):
        output = replace(output, panes=AfterRecords(1))
    return replace(output, sink=output.sink.moved_to_default())


def check_redirected(found: Pipeline) -> None:
    """Raise Refused for a source that is not a copy of whole files, and for a sink that can't be moved."""
    if not isinstance(found.source, Files):
        raise Refused(
            f"pipeline {found.name}: its source is "
            f"{'one of several' if found.sources else type(found.source).__name__}; a crash test reads a copy of files",
            data="nothing was read or written",
            hint="declare the same outputs over Files() in a file of its own, and give its input as --input",
        )
    for output in found.outputs:
        if other := output.sink.not_in_crashtest:
            raise Refused(
                f"pipeline {found.name}: output {output.name} writes to {other} to write to instead",
                data="nothing was read or written",
                hint="declare the same output with Postgres(…) or Delta(…) in a file of its own: the function is "
                "what is tested",
            )


def connections(found: Pipeline) -> list[str]:
    """Return the environment variables of its sinks' databases; in a crash test each names a scratch database."""
    return sorted({variable for output in found.outputs if (variable := output.sink.scratch_variable)})


def file_for_target(name: str, files: Sequence[Path], inbox: Path, folder: Path) -> Path:
    """Write the file with the moved pipeline, which loads the user's own files; return its path."""
    # A folder of its own: it comes onto the path of modules, where nothing else may be found.
    folder.mkdir(parents=True)
    path = folder / "onlyonce_crashtest.py"
    path.write_text(TEXT.format(name=name, files=[str(file.resolve()) for file in files], inbox=str(inbox)))
    return path


# Why the comparison is exact. All files are in the copy before the first run, under the same names and paths. So each
# platform lists the same sorted names and cuts them into the same batches, killed or not (`max_files_a_batch`; the
# manifest's append is one transaction). The max event time before a batch is then the same, and so is what is late. The
# input is declared ended in each run, so that no window waits, and none closes by silence, which depends on the clock.
# One dependence on the clock is left: `max_ahead` asks whether an event time is too far in the future. So input dated
# after now may be judged otherwise a minute later.
#
# The kills are SIGKILL of the driver, its JVM and its Python workers. Kills are tried at the points that the reference
# has passed. A point that only a backfill or a gc run passes is not tried.


Tell = Callable[[int, int, str], None]
"""Called after each step: how many kills are judged, of how many, and what comes next."""

PATIENCE = 10
"""A disturbed run may take this many times as long as the reference, and SLACK seconds, before it counts as stuck."""
SLACK = 300
TRIES = 3
"""How often a run that asks to be run again is repeated."""
SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def play(asked: Asked, tell: Tell) -> Report:
    """Play the crash test and return its report; every kill held if it has no warnings.

    Raise Refused for what can't be tested so, and Retryable or InvariantBroken if the undisturbed run fails. From this
    environment's platform only the declarations are read, and nothing is written there.
    """
    files = asked.files or settings.pipeline_files()
    pipeline = declarations.one(asked.pipeline, files)
    check_redirected(pipeline)
    if not asked.master.startswith("local"):
        raise Refused("a kill reaches the processes of this machine only", hint="--master local[2], or leave it out")
    left_out = _columns(asked.leave_out, pipeline)
    given = [path for path in folders.files(asked.input, recursive=folders.is_recursive(pipeline)) if path.is_file()]
    if not given:
        raise Refused(f"there are no files in {asked.input}", hint="--input names a folder like the pipeline's inbox")
    tell(0, 0, "a PostgreSQL of its own starts")
    with scratch.server("onlyonce-crashtest-", keep=asked.keep) as server:
        inbox = server.folder / "input"
        inbox.mkdir(mode=0o700)
        for path in given:
            copy = inbox / path.relative_to(asked.input)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        declared = file_for_target(asked.pipeline, files, inbox, server.folder / "declared")
        with _prefix(keep=asked.keep) as stored:
            return _Test(asked, pipeline, server, declared, left_out, tell, stored).play()


@contextmanager
def _prefix(*, keep: bool) -> Iterator[Url | None]:
    """Yield a prefix for data in a store, below this platform's and apart from its data; clear it in the end.

    Yield None if data is on a disk.
    """
    root = settings.data_root()
    if not isinstance(root, Url):
        yield None
        return
    at = root / f"crashtest-{uuid4().hex[:8]}"
    try:
        yield at
    finally:
        if not keep:
            stores.of(at).clear(at)


class _Test:
    """One crash test, with its server and the results of its reference."""

    def __init__(
        self,
        asked: Asked,
        pipeline: Pipeline,
        server: scratch.Server,
        declared: Path,
        left_out: list[tuple[str, str]],
        tell: Tell,
        stored: Url | None,
    ) -> None:
        self._stored = stored
        self._asked, self._pipeline, self._server, self._declared = asked, pipeline, server, declared
        self._left_out, self._tell = left_out, tell
        self._command = [asked.pipeline, "--close", *(["--max-files", str(asked.max_files)] if asked.max_files else [])]
        self._timeout: float | None = None
        self._wanted: dict[str, pa.Table] = {}
        self._passes: list[str] = []
        self._made = 0

    def play(self) -> Report:
        began = time.monotonic()
        self._tell(0, 0, "the undisturbed run")
        self._reference()
        seconds = time.monotonic() - began
        self._timeout = PATIENCE * seconds + SLACK
        strikes = self._strikes()
        played = Played(len(strikes), seconds, sum(table.num_rows for table in self._wanted.values()))
        queue = Queue(crash_results.dealt_points(strikes, self._asked.chain))
        number = 0
        while queue.chains:
            chain, number = queue.chains.pop(0), number + 1
            found = self._chain(chain, len(queue.verdicts), len(strikes))
            queue.judge(number, found, self._passes, go_on=self._asked.every)
            played.differences += [(number, apart) for apart in found.differences]
            played.stopped += [found.stopped] if found.stopped else []
            if (found.differences or found.stopped) and not self._asked.every:
                break
        played.verdicts = queue.verdicts
        if played.differences:
            played.control = self._control()
        return report(self._asked, played)

    def _reference(self) -> None:
        platform = self._platform()
        self._passes, code, output = platform.passes(*self._command, master=self._asked.master, timeout=None)
        if code:
            kind = Retryable if code == Retryable.exit_code else OnlyonceError
            raise kind(
                f"the undisturbed run already ends with {code}: {_last_words(output)}",
                data="this was a scratch platform, nothing else was touched",
                hint=f"does `onlyonce run {self._asked.pipeline}` work over this input?",
            )
        self._wanted = self._results(platform)
        if not crash_results.results_conserved(self._wanted):
            raise InvariantBroken(
                "the records of the undisturbed run do not add up", hint="--keep, then look into its log"
            )
        self._drop(platform)

    def _strikes(self) -> list[Strike]:
        asked = self._asked
        found = (
            crash_results.named_points(self._passes, asked.points)
            if asked.points
            else crash_results.every_point(self._passes, asked.seed)
        )
        return crash_results.sampled_points(found, asked.sample, asked.seed) if asked.sample else found

    def _chain(self, chain: list[Strike], done: int, of: int) -> Chain:
        """Kill at one point after the other over one platform, run to the end, compare."""
        platform = self._platform()
        struck: list[Strike] = []
        stopped: str | None = None
        for strike in chain:
            self._tell(done + len(struck), of, f"kill at {strike}")
            nth = crash_results.nth_from(self._passes, struck[-1] if struck else None, strike)
            code, output = self._run(platform, strike.point, nth)
            if code == -signal.SIGKILL and platform.struck(strike.point) >= nth:
                struck.append(strike)
                continue
            stopped = None if code == 0 else f"after {struck[-1] if struck else 'no kill'}: {_last_words(output)}"
            break
        else:
            self._tell(done + len(struck), of, "to the end")
            code, output = self._run(platform)
            stopped = None if code == 0 else f"after {struck[-1]}: {_last_words(output)}"
        apart: tuple[Difference, ...] = ()
        if stopped is None and struck:
            apart = self._apart(platform)
        self._drop(platform)
        return Chain(tuple(struck), tuple(chain[len(struck) :]), stopped, apart)

    def _control(self) -> tuple[Difference, ...]:
        """Return how another run without a kill differs: if it does, the function is at fault, not the kill."""
        self._tell(0, 0, "another undisturbed run")
        platform = self._platform()
        code, output = self._run(platform)
        if code:
            raise OnlyonceError(f"another undisturbed run ends with {code}: {_last_words(output)}")
        return self._apart(platform)

    def _run(self, platform: scratch.ScratchPlatform, point: str | None = None, nth: int = 1) -> tuple[int, str]:
        """Run once, and again if the run asks for it, as Airflow would; end a run that does not end."""
        code, output = 0, ""
        how: dict[str, Any] = {"master": self._asked.master, "timeout": self._timeout}
        for _ in range(TRIES):
            try:
                if point:
                    code, output = platform.run_killed(point, *self._command, nth=nth, **how)
                else:
                    code, output = platform.run_whole(*self._command, **how)
            except subprocess.TimeoutExpired:
                return -signal.SIGTERM, f"it had not ended after {self._timeout:.0f} s"
            if code != Retryable.exit_code:
                break
        return code, output

    def _apart(self, platform: scratch.ScratchPlatform) -> tuple[Difference, ...]:
        apart = crash_results.differences(self._wanted, self._results(platform), self._left_out)
        return crash_results.broken_results(self._pipeline, apart)

    def _results(self, platform: scratch.ScratchPlatform) -> dict[str, pa.Table]:
        return crash_results.results_of(platform, self._pipeline)

    def _platform(self) -> scratch.ScratchPlatform:
        self._made += 1
        home = self._server.folder / f"platform-{self._made}"
        home.mkdir(mode=0o700)
        database = self._server.new_database()
        url = self._server.url("writer", database)
        environment = {
            "ONLYONCE_HOME": str(home),
            "ONLYONCE_DATA": str(self._stored / home.name) if self._stored else "",
            "ONLYONCE_DATABASE_URL": url,
            "ONLYONCE_READER_URL": self._server.url("reader", database),
            "ONLYONCE_PIPELINES": str(self._declared),
            "ONLYONCE_FAILPOINTS": "",
            "ONLYONCE_SPARK_UI": "false",
            "ONLYONCE_IN_DRIVER_BYTES": "0",  # as for a large batch: by Spark's tasks
            "JDK_JAVA_OPTIONS": variable("JDK_JAVA_OPTIONS") or SHORT_JVM,
        }
        for name in connections(self._pipeline):
            environment[name] = self._server.url("writer", self._server.new_database())
        return scratch.ScratchPlatform(home, environment, database)

    def _drop(self, platform: scratch.ScratchPlatform) -> None:
        if not self._asked.keep:
            self._server.drop(platform.database)
            shutil.rmtree(platform.home, ignore_errors=True)
            if isinstance(platform.data, Url):
                stores.of(platform.data).clear(platform.data)


def _columns(texts: list[str], pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return OUTPUT.COLUMN as pairs; refuse an unknown output."""
    pairs = [(text.partition(".")[0], text.partition(".")[2]) for text in texts]
    for output, column in pairs:
        if output not in (known := [o.name for o in pipeline.outputs]):
            raise unknown("output", output, known)
        if not column:
            raise Refused(f"--leave-out {output}: names no column", hint=f"--leave-out {output}.COLUMN")
    return pairs


def _last_words(output: str) -> str:
    """Return the three lines of an error, or the last lines of any other output."""
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return "\n".join(lines[-3:]) if lines else "it said nothing"
