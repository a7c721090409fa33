"""Shared by all commands: errors as three lines and an exit code, output as tables or JSON, a reader's session."""

from __future__ import annotations

import ast
import copy
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape
from typer.core import TyperGroup

from onlyonce import asked, configuration, console, settings
from onlyonce.api.pipeline import Pipeline
from onlyonce.core.backlog import ASKING
from onlyonce.core.database_url import address
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.near_names import choose, did_you_mean, near
from onlyonce.core.runs import Interrupted, Report
from onlyonce.engine.failures import ended_with

if TYPE_CHECKING:
    from onlyonce.commitlog.health import Views

Answer = TypeVar("Answer")


def _named(incomplete: str) -> list[str]:
    """Return the names of declared pipelines that begin so, for the shell's completion.

    The files are parsed and never run: pressing TAB must not run code. A wrong file completes nothing.
    """
    names: list[str] = []
    with suppress(OnlyonceError, OSError, SyntaxError, ValueError):
        for path in settings.pipeline_files():
            names += _literal_names(ast.parse(path.read_bytes()))
    return [name for name in names if name.startswith(incomplete)]


def _literal_names(tree: ast.Module) -> list[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        word.value.value
        for call in calls
        if (call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")) == "Pipeline"
        for word in call.keywords
        if word.arg == "name" and isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
    ]


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
PipelineName = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A declared pipeline, like flights.", autocompletion=_named)
]
InstanceName = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE", help="A pipeline, or a bounded run of it, like flights@1.", autocompletion=_named
    ),
]


def _named_files(ctx: typer.Context, files: list[Path] | None) -> list[Path] | None:
    """Set ONLYONCE_PIPELINES to the given files until the command ends, so that whatever it calls reads them."""
    if files:
        ctx.with_resource(settings.within({"ONLYONCE_PIPELINES": os.pathsep.join(str(one.resolve()) for one in files)}))
    return files


OnlyPipeline = Annotated[
    str | None,
    typer.Argument(
        metavar="[PIPELINE]",
        help="One pipeline with its bounded runs, or one of these; by default all.",
        autocompletion=_named,
    ),
]
PipelineFiles = Annotated[
    list[Path] | None,
    typer.Option(asked.FILES.flag, metavar=asked.FILES.metavar, help=asked.FILES.help, callback=_named_files),
]
OnlyOfFiles = Annotated[
    list[Path] | None,
    typer.Option(
        asked.FILES.flag,
        metavar=asked.FILES.metavar,
        help="Show only the pipelines that this file declares.",
        callback=_named_files,
    ),
]
Limit = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, help="How many rows at most.")]


UNREADABLE: Any = typer.BadParameter.__bases__[0]
"""The error for a command that can't be read. Typer's version decides the package that has the class."""
MISSING: Any = sys.modules[UNREADABLE.__module__].MissingParameter
"""The error of a command without an argument that it needs."""
ONLY_HELP: Any = sys.modules[UNREADABLE.__module__].NoArgsIsHelpError
"""The error of a command without arguments, which prints its help."""
ONLY_HELP.exit_code = Refused.exit_code


OUTPUT_CLOSED = 141
"""The exit code of a program whose reader has ended, as shells know it: 128 and SIGPIPE."""
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended, as shells know it: 128 and SIGINT."""
AS_JSON = "onlyonce.as_json"
"""Where a command's context says whether it was given --json."""
NO_SUCH_TABLE = ("42P01", "3F000")
"""PostgreSQL's codes for a table, a view or a schema that it does not have."""
NO_SUCH_COLUMN = "42703"
UNKNOWN = re.compile(r'(?P<kind>column|relation|schema) (?P<name>"[^"]+"|\S+) does not exist')
"""PostgreSQL's message for a name that it does not have."""
PROGRAM = "onlyonce"
"""The name of the program, as opposed to a process that calls its commands."""
ANY_FORMAT = ("down", "stop")
"""The commands that end a platform of another format."""
NO_LOG = ("init", "up", "down", "demo", "feed", "settings", "crashtest", "conform")
"""The commands that ask no commit log, or only the one that they start: in the home, or for a test."""


class PlatformGroup(TyperGroup):
    """The group of all commands; turns an error of the platform into its three lines and its exit code."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's own options, with placeholders that a person reads."""
        return _readable(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, with placeholders in its help that a person reads."""
        found = super().get_command(ctx, cmd_name)
        if found:
            _readable(found.get_params(ctx))
        return found

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Take `help`, `help COMMAND`, `version` and `--json COMMAND` as what people mean by them."""
        ctx.meta[AS_JSON] = "--json" in args
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        if args[:1] == ["--json"]:
            args = [*args[1:], "--json"]
        try:
            return super().parse_args(ctx, ["--version"] if args == ["version"] else args)
        except ONLY_HELP:
            raise
        except UNREADABLE as error:
            raise _ended(ctx, unreadable(ctx, error)) from error

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the program, and end it even if a source does not answer.

        At its end Python waits for a library's native code in the thread of such a request, perhaps for ever.
        """
        try:
            return super().main(*args, **more)
        except SystemExit as end:
            asks = any(thread.name.startswith(ASKING) for thread in threading.enumerate())
            if asks and Path(sys.argv[0]).name == PROGRAM:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code if isinstance(end.code, int) else 1)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Print an error that is not the platform's in the same form, with its traceback in a file."""
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
            return found
        except (typer.Exit, typer.Abort, ONLY_HELP):
            raise
        except UNREADABLE as error:
            raise _ended(ctx, unreadable(ctx, error)) from error
        except KeyboardInterrupt as end:
            if isinstance(end, Interrupted):
                give(end.report, bool(ctx.meta.get(AS_JSON)))
            else:
                note("stopped by Ctrl-C: what is committed stays, and the same command continues")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as raised:
            if isinstance(raised, BrokenPipeError) and _nobody_reads():
                _write_nowhere()
                raise typer.Exit(OUTPUT_CLOSED) from raised
            raise _ended(ctx, ended_with(raised)) from raised

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and refuse it if the home or the database has another format.

        Before it does anything, it names the database of the commit log on standard error, unless JSON is asked for.
        """
        found = super().resolve_command(ctx, args)
        for unknown_setting, meant in () if ctx.resilient_parsing else configuration.misspelt():
            note(f"! {unknown_setting} is not a setting: did you mean {meant}?")
        if not (ctx.resilient_parsing or found[0] in ANY_FORMAT or {"-h", "--help"} & {*args}):
            refuse_other_format()
        name, command, left = found
        if command and name not in NO_LOG and not ctx.meta.get(AS_JSON):
            command = copy.copy(command)
            command.callback = _after_its_head(command.callback)
        return name, command, left


def _after_its_head(work: Any) -> Callable[..., Any]:
    @wraps(work)
    def whole(*given: Any, **options: Any) -> Any:
        # In JSON, a program reads what is on standard error.
        if settings.log_format() != "json" and (databases := databases_of_log()):
            note(f"the commit log in {databases}")
        return work(*given, **options)

    return whole


def databases_of_log() -> str:
    """Return host, port and name of the log's database, without its login; empty if no platform is known.

    If commands that only read have another database, it follows.
    """
    found = []
    for url in (settings.database_url, settings.reading_url):
        with suppress(FileNotFoundError, OnlyonceError, ValueError):  # the command itself refuses what it needs
            found.append(address(url()) + (" (stopped)" if is_own_stopped(url()) else ""))
    return ", read in ".join(dict.fromkeys(found))


def is_own_stopped(url: str) -> bool:
    """Return whether a URL is of this home's own PostgreSQL, and that is stopped."""
    if url not in [path.read_text().strip() for path in settings.home().glob("postgres/*.url")]:
        return False
    from onlyonce.local import postgres

    return not postgres.is_running()


NO_COMMAND = re.compile(r"No such command '(\w+)'$")
ELSEWHERE = {
    "show": "status", "list": "status", "ls": "status", "info": "status", "describe": "status", "logs": "commits",
    "validate": "check", "test": "check", "lint": "check", "compile": "check", "diff": "plan", "apply": "plan",
    "start": "up", "deploy": "up", "rerun": "backfill", "new": "init", "create": "init", "delete": "drop",
    "remove": "drop", "clean": "gc", "psql": "sql", "query": "sql", "config": "settings",
}  # fmt: skip
"""Commands of other tools, and what does here what is probably meant."""


def unreadable(ctx: Any, error: Any) -> Refused:
    """Return the error for a command line that can't be read, in the platform's form."""
    command = (error.ctx or ctx).command_path
    what = " ".join(error.format_message().split()).removesuffix(".")
    what, _, possible = what.partition(" (Possible options: ")
    meant = f"did you mean {possible.removesuffix(')')}? " if possible else ""
    if (unknown := NO_COMMAND.match(what)) and unknown[1] in ELSEWHERE:
        meant = f"did you mean `onlyonce {ELSEWHERE[unknown[1]]}`? "
    lacks_name = isinstance(error, MISSING) and error.param is not None and error.param.name == "pipeline"
    names = sorted(_named("")) if lacks_name else []
    return Refused(
        f"{command}: {what[:1].lower()}{what[1:]}",
        data="nothing was read or written",
        hint=(f"pipelines here: {', '.join(names)}; " if names else meant)
        + f"`{command} --help` lists what may follow",
    )


def _ended(ctx: Any, error: OnlyonceError) -> typer.Exit:
    """Print an error as lines or JSON, and return the exit with its code."""
    if ctx.meta.get(AS_JSON):
        typer.echo(console.error_as_json(error), err=True)
    else:
        console.show_error(error, console.console(stderr=True))
    return typer.Exit(error.exit_code)


def _readable(parameters: list[Any]) -> list[Any]:
    """Change what help shows for a value, by default `{PIPELINE}`, `[[PIPELINE]]`, `<str>`: PIPELINE, [PIPELINE], none.

    An option that takes no value has nothing next to it.
    """
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
        elif one.param_type_name == "argument":
            bare = (one.metavar or one.name.upper()).strip("[].")
            shown = (bare if one.required else f"[{bare}]") + "..." * (one.nargs != 1)
            one.get_usage_pieces = lambda _, shown=shown: [shown]
            one.display_type_rich = lambda **_: None  # the type of its values, as Python writes it
        elif one.metavar is None:
            one.metavar = one.name.upper()
    return parameters


def _nobody_reads() -> bool:
    """Return whether standard output is a pipe whose reader has ended, as behind `| head`."""
    with suppress(OSError, ValueError):
        output = select.poll()
        output.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in output.poll(0))
    return False


def _write_nowhere() -> None:
    """Discard what is still in standard output's buffer, otherwise Python would report it as it ends."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def refuse_other_format() -> None:
    """Raise Refused if the home or the platform's database has another format.

    A database that can't be asked now is left to the command itself.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from onlyonce.database import statements
    from onlyonce.database.connect import Database, transaction

    statements.check_home()
    found, urls = None, []
    for url in (settings.reading_url, settings.database_url):
        with suppress(FileNotFoundError, OnlyonceError):
            urls.append(url())
    for one in dict.fromkeys(urls):
        with (
            suppress(ImportError, SQLAlchemyError, OnlyonceError),
            settings.within({"ONLYONCE_DATABASE_PATIENCE": "0"}),  # one that is silent costs 2 s, not 10
            transaction(Database(one, "onlyonce-format", any_format=True)) as connection,
        ):
            found = statements.format_of_database(connection)
            break
    statements.refuse_other_format(found, "the database")


def asking(job: str) -> Callable[[Callable[[Any, list[str], bool], None]], Callable[..., None]]:
    """Make a command of a job's options (`onlyonce.asked`), with --json.

    The function gets the options by their names, as words, and whether to print JSON. Its docstring is the command's
    help.
    """

    def made(work: Callable[[Any, list[str], bool], None]) -> Callable[..., None]:
        def command(*, as_json: bool, **given: Any) -> None:
            work(SimpleNamespace(**given), asked.words(job, given), as_json)

        taken = [_parameter(option) for option in asked.JOBS[job] if not option.own]
        taken.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))
        command.__signature__ = Signature(taken)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in taken}
        command.__name__, command.__doc__ = work.__name__, work.__doc__
        return command

    return made


def _parameter(option: asked.Option) -> Parameter:
    if option is asked.FILES:
        return Parameter(option.dest, Parameter.KEYWORD_ONLY, default=None, annotation=PipelineFiles)
    kind: Any = option.kind
    kind = kind if option.needed or option.default is not None else kind | None
    metavar = option.metavar or ("NUMBER" if option.kind in (int, float) else None)
    known: dict[str, Any] = {"metavar": metavar, "help": option.help, "min": option.least}
    if option.positional:
        declared_by: Any = typer.Argument(**known, autocompletion=_named)
    else:
        declared_by = typer.Option(option.flag, **known)
    default = Parameter.empty if option.needed else option.default
    return Parameter(option.dest, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared_by])


def give(
    value: Report | Sequence[console.Row],
    as_json: bool,
    *,
    empty: str = "no rows",
    blocks: bool = False,
    whole: bool = False,
) -> None:
    """Print a report or rows on standard output.

    blocks   each row as a block, and none as a line of a table
    whole    with the columns that have no value in any row
    """
    if as_json:
        typer.echo(console.as_json(value))
    elif isinstance(value, Report):
        console.show_report(value, console.console())
    else:
        console.show_rows(value, console.console(), empty=empty, blocks=blocks, whole=whole)


def note(text: str) -> None:
    """Print a remark on standard error, where it disturbs no pipe."""
    console.console(stderr=True).print(text, style="dim", markup=False)


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Show a line on standard error while something takes long; yield a function that changes it.

    In a pipe each new string is printed once.
    """
    out = console.console(stderr=True)
    if out.is_terminal:
        with out.status(escape(text)) as status:
            yield lambda now: status.update(escape(now))
        return
    said = {text}

    def say(now: str) -> None:
        if now not in said:
            said.add(now)
            note(now)

    yield say


def read(work: Callable[[Views], Answer], by: Callable[[], str] = settings.reading_url) -> Answer:
    """Return what `work` reads in one read-only transaction, as the reader if that role is known.

    It makes one attempt: a person who waits wants to know immediately that the database is unreachable. Raise Retryable
    then, and Refused if the platform was never started or the statement is wrong.
    """
    from sqlalchemy.exc import DBAPIError

    from onlyonce.commitlog.health import Views
    from onlyonce.database import statements
    from onlyonce.database.connect import Database

    url = there(by)
    try:
        with Views.at_one_moment(Database(url, "onlyonce-reader", only_reads=True)) as views:
            statements.refuse_unused(views.connection)
            return work(views)
    except DBAPIError as error:
        raise _refused_by_database(error, url) from error


def there(url: Callable[[], str]) -> str:
    """Return a database's URL.

    Raise Refused if there is no platform under the home folder yet, its own server was stopped, or only the reader of
    another platform is named.
    """
    from onlyonce import settings

    try:
        found = url()
    except FileNotFoundError as error:
        if named := settings.named_database():
            raise Refused(
                f"{named[0]} names the platform at {named[1]}, and ONLYONCE_DATABASE_URL names no role that may "
                "write there",
                data="nothing was read or written",
                hint="set ONLYONCE_DATABASE_URL to the same database; in containers: docker compose exec "
                "airflow-scheduler onlyonce …",
            ) from error
        raise Refused(
            f"there is no platform under {settings.home()} yet",
            data="nothing was read or written",
            hint="`onlyonce up --no-airflow` makes it (with Airflow: `onlyonce up`); ONLYONCE_HOME names one elsewhere",
        ) from error
    if is_own_stopped(found):
        # Only a person starts it, so there is nothing to wait for.
        raise Refused(
            f"the PostgreSQL of {settings.home()} is stopped",
            data="nothing was read or written",
            hint="`onlyonce up` starts it, with Airflow; `onlyonce up --no-airflow` starts it alone",
        )
    return found


def started_database() -> None:
    """Ensure that the platform's database runs.

    For a person at a terminal the embedded database is started, and created, without Airflow. A job has no terminal: if
    it finds no platform it may look in the wrong place, and would write its rows a second time. Then raise Refused.
    """
    from onlyonce import settings

    out = console.console(stderr=True)
    if settings.embedded() and out.is_terminal:
        from onlyonce.local import platform

        platform.database(out)
    there(settings.database_url)


def rows_of(instance: str, query: str, **parameters: Any) -> list[console.Row]:
    """Return the rows of a named query about a pipeline or bounded run. Raise Refused for an unknown name."""
    found = read(lambda views: views.rows(query, instance=instance, **parameters))
    return found or _none_of(instance)


def _none_of(instance: str) -> list[console.Row]:
    declared(instance)
    return []


def only_declared(rows: list[console.Row], files: list[Path] | None, column: str = "pipeline") -> list[console.Row]:
    """Return the rows of the pipelines that the files declare; all rows if no file is given."""
    if not files:
        return rows
    from onlyonce.api import load as declarations

    known = declarations.load()
    return [row for row in rows if str(row[column]).partition("/")[0].partition("@")[0] in known]


def declared(instance: str) -> Pipeline:
    """Return the declaration of a pipeline, or of a bounded run (flights@1). Raise Refused with a guess."""
    from onlyonce.api import load as declarations

    name, known = instance.partition("@")[0], declarations.load()
    found = declarations.pick(known, name, logged=() if name in known else in_log() or ())
    refuse_unknown_run(instance)
    return found


def refuse_unknown_run(instance: str) -> None:
    """Raise Refused for a bounded run that the log does not have. Return if the log can't be asked."""
    name, at, _ = instance.partition("@")
    if not at or (known := in_log()) is None or instance in known:
        return
    runs = [one for one in known if one.startswith(f"{name}@")]
    raise Refused(
        f"no bounded run {instance!r}",
        data="nothing was read or written",
        hint=choose(instance, runs) if runs else f"{name} has none: `onlyonce run {name} --bounded` makes one",
    )


def in_log() -> list[str] | None:
    """Return the pipelines and bounded runs that the log has; None if it can't be asked."""
    with suppress(OnlyonceError):
        return [row["instance"] for row in read(lambda views: views.rows("instances"))]
    return None


def _refused_by_database(error: Any, url: str = "") -> Refused:
    """Return the refusal of a statement: where it is wrong, and for an unknown name the known names."""
    cause = str(error.orig).strip().splitlines()
    code = getattr(error.orig, "pgcode", None)
    place = getattr(getattr(error.orig, "diag", None), "statement_position", None)
    what = cause[0] if cause else type(error.orig).__name__
    hint = ""
    if url and code in (NO_SUCH_COLUMN, *NO_SUCH_TABLE):
        hint = known_names(what, str(error.statement), _columns(url))
    if not hint and code in NO_SUCH_TABLE:
        hint = (
            "a result table is there from its first batch on; what there is: "
            'onlyonce sql "select table_schema, table_name from information_schema.tables '
            "where table_schema in ('onlyonce', 'results')\""
        )
    return Refused(
        f"the database refuses it{f' at character {place}' if place else ''}: {what}",
        data="nothing was changed; this role only reads",
        hint=hint or "correct the statement; it may only read (SELECT, WITH, EXPLAIN)",
    )


Columns = list[tuple[str, str]]
"""(schema.table, column)."""


def _columns(url: str) -> Columns:
    """Return the columns that the role may read; none if the database does not say."""
    from sqlalchemy.exc import DBAPIError

    from onlyonce.commitlog.health import Views
    from onlyonce.database.connect import Database

    with (
        suppress(DBAPIError, OnlyonceError),
        Views.at_one_moment(Database(url, "onlyonce-reader", only_reads=True)) as views,
    ):
        return [(row["table"], row["column"]) for row in views.rows("columns_there")]
    return []


def known_names(what: str, statement: str, columns: Columns) -> str:
    """Return the hint for an unknown column or table: the most similar name, and the names to choose from.

    For a column these are the columns of the tables that the statement names. Empty if the message names neither.
    """
    found = UNKNOWN.match(what)
    if found is None:
        return ""
    name = found["name"].replace('"', "")
    if found["kind"] == "column":
        asked = [column for table, column in columns if re.search(rf"\b{re.escape(table.split('.')[1])}\b", statement)]
        return choose(name.rpartition(".")[2], list(dict.fromkeys(asked))) if asked else ""
    schema = name if found["kind"] == "schema" else name.rpartition(".")[0]
    tables = list(dict.fromkeys(table for table, _ in columns))
    inside = [table for table in tables if table.startswith(f"{schema}.")] if schema else []
    if not tables:
        return ""
    by_name = {table.split(".")[1]: table for table in tables}
    close = near(name, tables) if schema else by_name.get(near(name, by_name) or "")
    first = "" if close else "a result table is there from its first batch on; "
    return f"{did_you_mean(close)}{first}choose one of: {', '.join(inside or tables)}"
