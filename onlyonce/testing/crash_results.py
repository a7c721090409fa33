"""Decide which kills a crash test makes, read and compare its results, and word its report.

A chain is a series of kills over one copy of the input. Each run is killed at the next point of the chain; the last run
ends by itself. Then the results are compared with an undisturbed run's results. One comparison judges the whole chain.
"""

from __future__ import annotations

import io
import random
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psycopg2
import pyarrow as pa
from psycopg2 import sql
from pyarrow import compute as pc
from pyarrow import csv, json, parquet

from onlyonce.api.pipeline import Output, Pipeline, target, unknown
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place, in_database
from onlyonce.core.runs import Report
from onlyonce.core.stored_names import CONTROL, OO_INGESTION_TIME, OO_KIND, OO_RAW, OO_REASON, OO_UNKNOWN
from onlyonce.core.units import FLOAT_TOLERANCE
from onlyonce.database.statements import queries
from onlyonce.sinks.files.file_stores import PENDING
from onlyonce.tables import opening
from onlyonce.testing.scratch import ScratchPlatform

Said = Literal["held", "differs", "stopped", "not reached", "not judged"]


@dataclass(frozen=True)
class Strike:
    """A kill at the `nth` pass of a point, which is pass number `at` of all in an undisturbed run."""

    point: str
    nth: int
    at: int

    def __str__(self) -> str:
        return f"{self.point}:{self.nth}"


@dataclass(frozen=True)
class Difference:
    """How the rows of one result differ from the reference: how many are missing, how many there are too many."""

    result: str
    lost: int
    doubled: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chain:
    """The result of a chain: the kills that struck, the kills that were not reached, and how the chain ended.

    `stopped` has the last words of the run after the last kill if it failed; then nothing was compared.
    """

    struck: tuple[Strike, ...]
    unreached: tuple[Strike, ...] = ()
    stopped: str | None = None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The verdict on one kill. The sums are over its whole chain."""

    strike: Strike
    chain: int
    killed: bool
    lost: int | None
    doubled: int | None
    said: Said


@dataclass
class Queue:
    """The chains that remain to play. A kill that was not reached becomes the first kill of a new chain."""

    chains: list[list[Strike]]
    verdicts: list[Verdict] = field(default_factory=list)

    def judge(self, number: int, found: Chain, passes: Sequence[str], *, go_on: bool) -> None:
        """Add the verdicts of a chain that was played; `go_on`: what it could not judge is tried again."""
        again = list(found.unreached)
        if not found.struck:
            head = again.pop(0)
            first = _strike(passes, head.point, 1)
            if found.stopped is not None:
                self.verdicts.append(Verdict(head, number, False, None, None, "stopped"))
            elif first == head:
                self.verdicts.append(Verdict(head, number, False, None, None, "not reached"))
            else:
                again.insert(0, first)  # this run passed the point less often; every run has the first pass
        self.verdicts += judged(number, found)
        if found.stopped is not None:
            again = [*found.struck[:-1], *again]
        if found.stopped is not None and not go_on:
            left = [Verdict(strike, number, strike in found.struck, None, None, "not judged") for strike in again]
            self.verdicts += left
        elif again:
            self.chains.append(again)


def every_point(passes: Sequence[str], seed: int) -> list[Strike]:
    """Return each point that an undisturbed run passes, once, at a pass drawn by the seed; in the order of the run."""
    chance = random.Random(seed)
    counts = Counter(passes)
    return _in_order(_strike(passes, point, chance.randint(1, counts[point])) for point in sorted(counts))


def named_points(passes: Sequence[str], wanted: Iterable[str]) -> list[Strike]:
    """Return the kills that a person names: `point` for its first pass, or `point:nth`.

    Raise Refused for a point that isn't passed.
    """
    counts = Counter(passes)
    found = []
    for text in wanted:
        point, _, nth = text.strip().partition(":")
        if point not in counts:
            raise unknown("fail-point on the way of this pipeline", point, sorted(counts))
        if nth and not (nth.isdigit() and 1 <= int(nth) <= counts[point]):
            raise Refused(f"{text}: a run passes {point} {counts[point]} times", hint=f"{point}:1 is its first pass")
        found.append(_strike(passes, point, int(nth or 1)))
    return _in_order(set(found))


def sampled_points(strikes: list[Strike], count: int, seed: int) -> list[Strike]:
    """Return `count` of the kills by chance; the same seed draws the same."""
    return _in_order(random.Random(seed).sample(strikes, min(count, len(strikes))))


def dealt_points(strikes: list[Strike], length: int) -> list[list[Strike]]:
    """Return the kills as chains of at most `length`.

    They are dealt out one by one, so that each chain covers all batches.
    """
    chains = -(-len(strikes) // length)
    return [strikes[n::chains] for n in range(chains)]


def nth_from(passes: Sequence[str], before: Strike | None, strike: Strike) -> int:
    """Return at which pass to kill a run that continues after the kill `before`.

    It is about right: the run repeats a little of what was.
    """
    start = before.at + 1 if before else 0
    return max(1, list(passes[start : strike.at + 1]).count(strike.point))


def judged(number: int, found: Chain) -> list[Verdict]:
    """Return the verdicts on the kills of a chain that struck."""
    if found.stopped is not None:
        return [Verdict(strike, number, True, None, None, "stopped") for strike in found.struck[-1:]]
    lost, doubled = (sum(getattr(d, name) for d in found.differences) for name in ("lost", "doubled"))
    said: Said = "differs" if found.differences else "held"
    return [Verdict(strike, number, True, lost, doubled, said) for strike in found.struck]


def broken_results(pipeline: Pipeline, differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Return the differences that the declaration does not allow.

    With at least once, a kill may leave rows of a PostgreSQL append twice, and changes nothing else.
    """
    allowed = {o.name for o in pipeline.outputs if pipeline.mode == "at_least_once" and o.sink.doubles_at_least_once}
    return tuple(d for d in differences if d.lost or (d.doubled and d.result not in allowed))


def advice(
    verdicts: Iterable[Verdict], control: Sequence[Difference] | None, stopped: Sequence[str], again: str
) -> list[str]:
    """Return what to do if not every kill held.

    control   how a second run without a kill differs, if one was made
    stopped   the last words of the runs that stopped
    again     the command that plays the kills of one chain alone
    """
    said = {verdict.said for verdict in verdicts}
    told = list(dict.fromkeys(stopped))
    if control:
        where = ", ".join(d.result for d in control)
        told.append(
            f"two runs without any kill differ too ({where}): a function gives different rows each time (rand(), "
            f"now(), {OO_INGESTION_TIME}, a look-up that changes), so no kill can be judged by them. If another run "
            "must not change what was written, declare stable_input=True on the output; columns that may change: "
            "--leave-out OUTPUT.COLUMN"
        )
    elif "differs" in said:
        told.append(
            "a run without a kill gives the results of the reference, so it was a kill that shows. Each kill of that "
            f"chain alone: {again}"
        )
    if "stopped" in said:
        told.append(
            "after a kill the same command did not come to its end: nothing was written twice, but in earnest a person "
            "would have to look. If its message is about different rows in a replay, declare stable_input=True on the "
            "output"
        )
    if "not reached" in said:
        told.append("a point was not passed again in the disturbed runs: nothing is known of a kill there")
    return told


def _strike(passes: Sequence[str], point: str, nth: int) -> Strike:
    return Strike(point, nth, [at for at, name in enumerate(passes) if name == point][nth - 1])


def _in_order(strikes: Iterable[Strike]) -> list[Strike]:
    return sorted(strikes, key=lambda strike: strike.at)


# The rows of sharded files and of requests, as Arrow tables that can be compared: floats are floats, not strings. For a
# format of the user's own only the number of rows in each file is known.


FILE = "oo_file"
"""The final name of a row's file: so a row in another shard, pane or window is another row."""


def content_of_files(folder: Path, kind: str, winners: Iterable[tuple[str, str, int]]) -> pa.Table:
    """Return the rows of all current files, given as (temporary, final name, rows); an empty file is a row of nulls."""
    tables = []
    for temporary, name, rows in winners:
        path = folder / PENDING / temporary
        read = READERS.get(kind)
        found = read(path.read_bytes()) if read and rows else pa.table({"rows": pa.array([rows], pa.int64())})
        tables.append(found.append_column(FILE, pa.repeat(name, found.num_rows)))
    return (
        pa.concat_tables(tables, promote_options="permissive")
        if tables
        else pa.table({FILE: pa.array([], pa.string())})
    )


def content_of_payloads(requests: pa.Table) -> pa.Table:
    """Return the rows that requests or messages hold as JSON, each with its key."""
    if not requests.num_rows:
        return requests
    lines = "\n".join(requests["payload"].to_pylist())
    return _json(lines.encode()).append_column("oo_key", requests["key"])


def _json(lines: bytes) -> pa.Table:
    # One block: a column's type is decided by all of its values.
    options = json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(lines)))
    return _times_as_text(json.read_json(io.BytesIO(lines), options))


def _text(lines: bytes) -> pa.Table:
    return pa.table({"line": lines.decode().removesuffix("\n").split("\n")})


def _csv(content: bytes) -> pa.Table:
    return _times_as_text(csv.read_csv(io.BytesIO(content), parse_options=csv.ParseOptions(newlines_in_values=True)))


def _times_as_text(found: pa.Table) -> pa.Table:
    """Cast times to strings: a string that looks like a time is read as one, but perhaps not in the next file."""
    known = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
    fields = [f.with_type(pa.string()) if any(of_time(f.type) for of_time in known) else f for f in found.schema]
    return found.cast(pa.schema(fields))


def _parquet(content: bytes) -> pa.Table:
    return parquet.read_table(io.BytesIO(content))


def _avro(content: bytes) -> pa.Table:
    import fastavro

    return pa.Table.from_pylist(list(fastavro.reader(io.BytesIO(content))))


READERS: dict[str, Callable[[bytes], pa.Table]] = {
    "jsonl": _json, "text": _text, "csv": _csv, "parquet": _parquet, "avro": _avro
}  # fmt: skip


# What a scratch platform holds in the end, as Arrow tables: `events`, each output, and what the log says of them.
#
# For an output of files these are the rows of the current files, each with the final name of its file. For an output
# that is sent outside, these are the rows that wait in the outbox. Columns about the run and not about the result
# (ingestion time, incarnation, batch, partition) are left out. All of these tables are in memory at once.


FLOATS = {700: pa.float32(), 701: pa.float64()}
"""PostgreSQL's numbers for real and double precision. Everything else is compared as a string, which is exact."""
JUDGED = (OO_KIND, OO_REASON, OO_RAW, OO_UNKNOWN)


def results_of(platform: ScratchPlatform, pipeline: Pipeline) -> dict[str, pa.Table]:
    """Return all results by name."""
    found = {"events": _events(platform, pipeline)}
    found |= {output.name: _output(platform, pipeline, output) for output in pipeline.outputs}
    url = platform.environment["ONLYONCE_DATABASE_URL"]
    return found | {f"log: {name}": _copied(url, sql.SQL(text)) for name, text in queries("crashtest").items()}


def results_conserved(results: dict[str, pa.Table]) -> bool:
    """Return whether all records add up, by the log."""
    return bool(pc.all(pc.equal(results["log: fates"]["conserved"], "t"), min_count=0).as_py())


def _events(platform: ScratchPlatform, pipeline: Pipeline) -> pa.Table:
    # What stays of an invalid record is its raw content; control rows are the platform's own.
    columns = [*pipeline.columns(), *JUDGED]
    table = opening.table(platform.data / stored_names.DATA_FOLDER / pipeline.name / stored_names.EVENTS_FOLDER)
    return pa.table(table.to_pyarrow_table(columns=columns, filters=[(OO_KIND, "!=", CONTROL)]))


def _output(platform: ScratchPlatform, pipeline: Pipeline, output: Output) -> pa.Table:
    url = platform.environment["ONLYONCE_DATABASE_URL"]
    place = Place(target(pipeline, output))
    if in_database(place):
        url = platform.environment[place.variable or "ONLYONCE_DATABASE_URL"]
        name = sql.Identifier(*place.where.split(".", 1))
        return _copied(url, sql.SQL("SELECT * FROM {}").format(name))
    if output.sink.writes_files:
        return content_of_files(
            platform.home / stored_names.RESULT_FILES_FOLDER / pipeline.name / output.name,
            output.sink.format,
            _winners(url, output),
        )
    if output.sink.is_external:
        return content_of_payloads(_of_log(url, output, "requests"))
    return pa.table(
        opening.table(platform.data / stored_names.TABLES_FOLDER / pipeline.name / output.name).to_pyarrow_table()
    )


def _winners(url: str, output: Output) -> list[tuple[str, str, int]]:
    """Return (temporary, final name, rows) of each current file."""
    found = _of_log(url, output, "files").to_pylist()
    return [(row["temporary"], row["name"], int(row["rows"])) for row in found]


def _of_log(url: str, output: Output, query: str) -> pa.Table:
    every = _copied(url, sql.SQL(queries("crashtest_outputs")[query]))
    return every.filter(pc.equal(every["output"], output.name))


def _copied(url: str, select: sql.Composable) -> pa.Table:
    session = psycopg2.connect(url.replace("+psycopg2", ""), options="-c timezone=UTC")
    try:
        with session.cursor() as cursor:
            cursor.execute(sql.SQL("SELECT * FROM ({}) AS s LIMIT 0").format(select))
            types = {column.name: FLOATS.get(column.type_code, pa.string()) for column in cursor.description or ()}
            rows = io.BytesIO()
            cursor.copy_expert(sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, HEADER)").format(select), rows)
    finally:
        session.close()
    rows.seek(0)
    return csv.read_csv(
        rows,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    )


# How two results differ, as multisets of rows, in Arrow: loss and duplicates can't cancel out.
#
# Floats are compared apart: a sum of doubles differs in its last digits with the order of its terms, which Spark does
# not promise. Rows that agree in all other columns are compared in order, floats within a tolerance.


SINGLE_TOLERANCE = 1e-5
TO_ZERO = 1e-12
"""As a share of the largest value of a column: a sum that should be zero differs from it by its terms' rounding."""
SIGN = "oo_sign"
EXAMPLES = 3


def difference(result: str, wanted: pa.Table, found: pa.Table) -> Difference | None:
    """Return what is lost of `wanted`, and what there is more often; None if both hold the same rows."""
    if set(wanted.column_names) != set(found.column_names):
        columns = (f"columns {sorted(wanted.column_names)}", f"now {sorted(found.column_names)}")
        return Difference(result, wanted.num_rows, found.num_rows, columns)
    one, other = _plain(wanted), _plain(found.select(wanted.column_names))
    floats = [field.name for field in one.schema if pa.types.is_floating(field.type)]
    exact = [name for name in one.column_names if name not in floats]
    counted = pa.concat_tables([_signed(one, exact, 1), _signed(other, exact, -1)])
    sums = counted.group_by([*exact, "oo_row"]).aggregate([(SIGN, "sum")])
    apart = sums.filter(pc.not_equal(sums[f"{SIGN}_sum"], 0))
    if apart.num_rows:
        by_row = apart[f"{SIGN}_sum"]
        lost = pc.sum(pc.max_element_wise(by_row, 0)).as_py()
        return Difference(result, lost, lost - pc.sum(by_row).as_py(), _examples(apart.select(exact), by_row))
    changed = _changed(one, other, exact, floats) if floats and one.num_rows else None
    if changed is None or not changed.any():
        return None
    examples = _told(_sorted(other, exact, floats).filter(pa.array(changed)).slice(0, EXAMPLES), "changed")
    return Difference(result, int(changed.sum()), int(changed.sum()), examples)


def differences(
    wanted: dict[str, pa.Table], found: dict[str, pa.Table], left_out: Iterable[tuple[str, str]] = ()
) -> list[Difference]:
    """Return the differences of all results. `left_out` names the columns (result, column) that are not compared."""
    unseen = set(left_out)

    def seen(result: str, table: pa.Table) -> pa.Table:
        return table.select([name for name in table.column_names if (result, name) not in unseen])

    pairs = [(name, seen(name, table), seen(name, found[name])) for name, table in wanted.items()]
    return [apart for pair in pairs if (apart := difference(*pair))]


def _plain(table: pa.Table) -> pa.Table:
    """Return the rows in columns that Arrow can group and sort by: structs as their fields, lists and maps as
    strings."""
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    for at, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(at, column.name, table.column(at).cast(column.type.value_type))
        elif pa.types.is_nested(column.type):
            # Arrow neither groups nor prints these. Few results have them.
            texts = pa.array(
                [None if value is None else repr(value) for value in table.column(at).to_pylist()], pa.string()
            )
            table = table.set_column(at, column.name, texts)
    return table


def _signed(table: pa.Table, exact: list[str], sign: int) -> pa.Table:
    rows = table.num_rows
    signs = pa.array(np.full(rows, sign, dtype=np.int64))
    # A table of floats alone is one group.
    one = pa.array(np.zeros(rows, dtype=np.int8))
    return table.select(exact).append_column(SIGN, signs).append_column("oo_row", one)


def _sorted(table: pa.Table, exact: list[str], floats: list[str]) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in (*exact, *floats)])


def _changed(one: pa.Table, other: pa.Table, exact: list[str], floats: list[str]) -> np.ndarray[Any, Any]:
    """Return which rows, in their order, differ in a float."""
    left, right = _sorted(one, exact, floats), _sorted(other, exact, floats)
    changed = np.zeros(left.num_rows, dtype=bool)
    for name in floats:
        single = pa.types.is_float32(left.schema.field(name).type)
        a, b = (side[name].cast(pa.float64()).to_numpy() for side in (left, right))
        finite = np.abs(a[np.isfinite(a)])
        nearly = TO_ZERO * (finite.max() if finite.size else 0.0)
        close = np.isclose(a, b, rtol=SINGLE_TOLERANCE if single else FLOAT_TOLERANCE, atol=nearly, equal_nan=True)
        nulls = [side[name].is_null().to_numpy() for side in (left, right)]
        changed |= ~close | (nulls[0] != nulls[1])
    return changed


def _examples(rows: pa.Table, by_row: Any) -> tuple[str, ...]:
    lost, more = rows.filter(pc.greater(by_row, 0)), rows.filter(pc.less(by_row, 0))
    return (*_told(lost.slice(0, EXAMPLES), "lost"), *_told(more.slice(0, EXAMPLES), "more"))


def _told(rows: pa.Table, how: str) -> tuple[str, ...]:
    return tuple(f"{how}: " + ", ".join(f"{k}={v}" for k, v in row.items()) for row in rows.to_pylist())


# What a crash test was asked for, what was found, and the report of both.


@dataclass(frozen=True)
class Asked:
    """The options of a crash test, from the command line of `onlyonce crashtest`."""

    pipeline: str
    input: Path
    files: list[Path] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    sample: int | None = None
    seed: int = 1
    chain: int = 6
    every: bool = False
    max_files: int | None = None
    leave_out: list[str] = field(default_factory=list)
    master: str = "local[2]"
    keep: bool = False


@dataclass
class Played:
    """The outcome. `control` is how another run without a kill differs from the reference, if one was made."""

    kills: int
    run_seconds: float
    rows: int
    verdicts: Sequence[Verdict] = ()
    differences: list[tuple[int, Difference]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    control: tuple[Difference, ...] | None = None


def report(asked: Asked, played: Played) -> Report:
    """Return the table of kills, the table of differences, and a warning for each thing to do.

    Every kill held if the fact `all held` is true.
    """
    told = advice(played.verdicts, played.control, played.stopped, _again(asked, played.verdicts))
    held = sum(verdict.said == "held" for verdict in played.verdicts)
    facts = {
        "all held": held == played.kills, "kills": played.kills, "held": held, "seed": asked.seed,
        "rows compared": played.rows, "a run takes": f"{played.run_seconds:.0f} s",
    }  # fmt: skip
    tables = {"kills": [_row(verdict) for verdict in played.verdicts]}
    apart = [{"chain": chain, **asdict(difference)} for chain, difference in played.differences]
    title = f"{asked.pipeline}: " + ("every kill held" if facts["all held"] else "not every kill held")
    return Report(title, "crashtest", facts, tables | ({"differences": apart} if apart else {}), told)


def _row(verdict: Verdict) -> dict[str, object]:
    point = {
        "point": verdict.strike.point,
        "pass": verdict.strike.nth,
        "chain": verdict.chain,
        "killed": verdict.killed,
    }
    return point | {"lost": verdict.lost, "doubled": verdict.doubled, "verdict": verdict.said}


def _again(asked: Asked, verdicts: Sequence[Verdict]) -> str:
    points = ",".join(str(verdict.strike) for verdict in verdicts if verdict.said == "differs")
    command = ["onlyonce", "crashtest", asked.pipeline, "--input", str(asked.input)]
    command += [part for file in asked.files for part in ("--pipelines", str(file))]
    command += ["--max-files", str(asked.max_files)] if asked.max_files else []
    return shlex.join([*command, "--chain", "1", "--all", "--points", points])
