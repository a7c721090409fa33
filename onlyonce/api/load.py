"""Load the files with declarations, check the pipelines together, find their functions, and compute fingerprints.

The checks come first: `check_following` for pipelines that read each other's tables, `refuse_nested_inboxes` for
inboxes. `load` reads the files and calls the checks. `function`, `reject` and `state` import what an output names, and
`fingerprint` hashes what decides a query's results.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from onlyonce import environment, settings
from onlyonce.api import functions as api_functions
from onlyonce.api import identity, syntax, target_identity
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.declaration import IN_DECLARATIONS, declared_at, not_of_python
from onlyonce.api.pipeline import DeltaSource, Output, Pipeline, target, unknown
from onlyonce.api.resolve import check_written, named
from onlyonce.core import durations, errors, stored_names
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.file_names import Naming
from onlyonce.core.locations import Location
from onlyonce.core.near_names import choose, did_you_mean, near
from onlyonce.core.ownership import Place
from onlyonce.core.triggers import AfterRecords, AfterTime
from onlyonce.core.windows import Fixed, Session, Sliding

Followed = tuple[str, str]
"""(pipeline, output)."""


def followed(pipeline: Pipeline, all_pipelines: Iterable[Pipeline]) -> list[Followed]:
    """Return the outputs whose tables a pipeline reads, compared by the path that both declare."""
    read = _tables(pipeline)
    return [
        (other.name, output.name)
        for other in all_pipelines
        for output in other.outputs
        if target(other, output).rstrip("/") in read
    ]


def check_following(pipelines: Sequence[Pipeline]) -> None:
    """Raise Refused for pipelines that read, directly or by way of others, what they write: runs would never end.

    Refuse also a pipeline that reads the appends of a table whose rows are replaced."""
    by_name = {one.name: one for one in pipelines}
    before = {one.name: [name for name, _ in followed(one, pipelines)] for one in pipelines}
    for one in pipelines:
        for name, output in followed(one, pipelines):
            _check_appends(one, by_name[name], output)
    for one in pipelines:
        seen, behind = set[str](), list(before[one.name])
        while behind:
            name = behind.pop()
            if name == one.name:
                raise Refused(
                    f"{declared_at(one)}pipeline {one.name} reads what it writes, by way of "
                    f"{', '.join(sorted(seen)) or 'no one else'}",
                    data="nothing was read or written",
                    hint="each of its runs would start the next one: let one of the pipelines write elsewhere",
                )
            behind += [] if name in seen else before.get(name, [])
            seen.add(name)


def _tables(pipeline: Pipeline) -> dict[str, DeltaSource]:
    """Return the sources that are tables, by the target of an output that would write the table."""
    sources = [one.source for one in pipeline.inputs.values()] or [pipeline.source]
    return {
        f"delta:{source.path.rstrip('/')}": source
        for source in sources
        if isinstance(source, DeltaSource) and source.path
    }


def _check_appends(pipeline: Pipeline, other: Pipeline, output: str) -> None:
    written = other.output(output)
    source = _tables(pipeline)[target(other, written).rstrip("/")]
    replaced = (
        str(written.sink.write)
        if written.sink.write != "append"
        else f"late={other.root_of(written).late!r}"
        if other.root_of(written).late_trigger
        else None
    )
    if replaced and not source.changes:
        raise Refused(
            f"{declared_at(source)}pipeline {pipeline.name} reads what is appended to the table of "
            f"{other.name}/{output}, whose rows are replaced ({replaced})",
            data="nothing was read or written; its first version that replaces a row could not be read",
            hint="DeltaSource(changes=True), with the table's property delta.enableChangeDataFeed; or let the "
            "output append, and count what is late",
        )


# A recursive inbox must not be above another inbox, the archive, or a table or folder that onlyonce writes: their files
# would be read as its input.


def refuse_nested_inboxes(pipelines: Iterable[Pipeline]) -> None:
    """Raise Refused for the first recursive inbox with such a location below it."""
    declared = list(pipelines)
    recursive = [view for pipeline in declared for view in api_pipeline.each_input(pipeline) if view.source.recursive]
    if not recursive:
        return
    others = [*_inboxes(declared), *_written(declared)]
    for view in recursive:
        inbox = _whole(api_pipeline.folder(view))
        for what, other in others:
            if inbox is not None and other is not None and other != inbox and _is_below(other, inbox):
                raise Refused(
                    f"{declared_at(view.source)}pipeline {view.name} reads {inbox} with all folders below it, and "
                    f"{what} is below it: {other}",
                    data="nothing was read or written; what is there would be read as input of this pipeline",
                    hint="move one of them, or leave recursive=True out",
                )


def _inboxes(pipelines: Iterable[Pipeline]) -> Iterator[tuple[str, Location | None]]:
    for pipeline in pipelines:
        for view in (one for one in api_pipeline.each_input(pipeline) if one.source.has_inbox):
            name = f"{pipeline.name}, source {view.part.name}" if view.part else pipeline.name
            yield f"the inbox of {name}", _whole(api_pipeline.folder(view))


def _written(pipelines: Iterable[Pipeline]) -> Iterator[tuple[str, Location | None]]:
    yield "the archive", _whole(settings.archive())
    yield "the data of all pipelines", _whole(settings.data_root() / stored_names.DATA_FOLDER)
    for pipeline in pipelines:
        for output in pipeline.outputs:
            place = Place(target(pipeline, output))
            if place.kind == "delta":
                yield f"the table of {pipeline.name}/{output.name}", _whole(settings.table_location(place.where))
            elif place.kind == "files" and "://" not in place.where:
                yield f"the folder of {pipeline.name}/{output.name}", _whole(settings.files_dir() / place.where)


def _whole(at: Location | None) -> Location | None:
    return at if at is None else settings.resolved(at)


def _is_below(at: Location, above: Location) -> bool:
    return str(at).startswith(f"{str(above).rstrip('/')}/")


# The declared pipelines and their functions.


NOTHING_DONE = "nothing was read or written"
IT_IS = "it is 'module:function', the module importable from the folder of the declarations or installed"


def load(files: list[Path] | None = None) -> dict[str, Pipeline]:
    """Return the declared pipelines by name. This imports no Spark, since DAG files call it too.

    Raise Refused for a missing or wrong file, two pipelines with one name, two outputs with one target, or pipelines
    that read in a circle. Raise it also if an inbox that is read with the folders below it has another inbox there.
    """
    found: dict[str, Pipeline] = {}
    for path in files or settings.pipeline_files():
        for pipeline in _pipelines_of(path):
            if pipeline.name in found:
                raise _second(path, found[pipeline.name], pipeline)
            found[pipeline.name] = pipeline
    target_identity.refuse_shared(found.values())
    target_identity.refuse_own_tables(found.values())
    refuse_nested_inboxes(found.values())
    check_following(list(found.values()))
    return found


def _second(path: Path, first: Pipeline, second: Pipeline) -> Refused:
    """Return the refusal of a pipeline whose name another one has."""
    if first is second:
        line = _line_of_list(path)
        at = f"{path}:{line[0]}" if line else str(path)
        return Refused(
            f"{at}: the pipeline {first.name!r} is in PIPELINES twice", data=NOTHING_DONE, hint="take one of them out"
        )
    other = f"; the first is at {declared_at(first).removesuffix(': ')}" if declared_at(first) else ""
    return Refused(
        f"{declared_at(second) or f'{path}: '}a second pipeline is named {second.name!r}{other}",
        data=NOTHING_DONE,
        hint="rename one of them",
    )


def one(name: str, files: list[Path] | None = None) -> Pipeline:
    """Return the declared pipeline of that name. Raise Refused as `load` and `pick`."""
    return pick(load(files), name, files)


def pick(
    pipelines: Mapping[str, Pipeline], name: str, files: list[Path] | None = None, logged: Collection[str] = ()
) -> Pipeline:
    """Return the pipeline of that name. Raise Refused with the most similar existing name.

    logged   the names that the log has, as far as it was asked
    """
    if name not in pipelines:
        if not pipelines and (at := empty_lists(files)):
            raise Refused(
                f"{at[0]}: no pipeline {name!r}: the list PIPELINES is empty", data=NOTHING_DONE, hint=FILL_LIST
            )
        if name in logged:
            raise Refused(
                f"the log has the pipeline {name!r}, and no file that was read declares it",
                data=NOTHING_DONE,
                hint=f"name its file: --pipelines FILE. The declared pipelines are {', '.join(sorted(pipelines))}",
            )
        raise unknown("pipeline", name, sorted(pipelines))
    return pipelines[name]


FILL_LIST = "put the pipelines into the list: PIPELINES = [Pipeline(name=…, …)]"


def empty_lists(files: list[Path] | None = None) -> list[str]:
    """Return where the files declare an empty list of pipelines, 'file:line'; the files must be loadable."""
    found = [(path, _line_of_list(path)) for named in files or settings.pipeline_files() if (path := _file_at(named))]
    return [f"{path}:{line[0]}" for path, line in found if line and line[1] == 0]


def check_loaded() -> None:
    """Load all declarations of the settings, and check that their functions are defined.

    This imports no Spark, since a DAG file calls it. Raise Refused as `load`, and for the first missing function.
    """
    try:
        pipelines = load()
    except Refused as error:  # Airflow would print its causes, with their tracebacks, before the three lines
        raise error.with_traceback(None) from None
    for pipeline in pipelines.values():
        for output in with_function(pipeline.outputs):
            for name in output.functions:
                check_written(name, _subject(output, name), **_written_in(output), data=NOTHING_DONE, hint=IT_IS)
            if output.reject:
                check_written(
                    output.reject,
                    _subject_of_reject(output),
                    at=declared_at(output, "reject"),
                    data=NOTHING_DONE,
                    hint=IT_IS,
                )
        for output in with_names(pipeline.outputs):
            check_written(
                output.sink.names,
                subject_of_names(output),
                at=declared_at(output.sink, "names"),
                data=NOTHING_DONE,
                hint=IT_IS,
            )


def with_function(outputs: Iterable[Output]) -> list[Output]:
    """Return the outputs that have their own functions: a result of another output's function has none."""
    return [output for output in outputs if not output.is_result]


def transform(output: Output) -> Callable[..., Any]:
    """Return the function that an output names; for a join the function of its left side.

    This imports the function's module, and so Spark. Raise Refused.
    """
    return function(output, output.functions[0])


def function(output: Output, name: str) -> Callable[..., Any]:
    """Return one of the functions that an output names. Raise Refused."""
    found: Callable[..., Any] = named(
        name, _subject(output, name), **_written_in(output), data=NOTHING_DONE, hint=IT_IS
    )
    _refuse_of_python(found, _subject(output, name), **_written_in(output))
    return found


def _refuse_of_python(found: Any, subject: str, *, made: object, option: str | None = None) -> None:
    """Raise Refused, at the declaration's line, for a function or class that is part of Python's own library."""
    if errors.of_python(found):
        raise not_of_python(f"{declared_at(made, option)}{subject}")


def functions(output: Output) -> list[Callable[..., Any]]:
    """Return the functions that make an output's rows: its own, or the two sides of its join. Raise Refused."""
    return [function(output, name) for name in output.functions] if output.join else [transform(output)]


def reject(output: Output) -> Callable[..., Any]:
    """Return the function that decides which rows an output rejects; the output must have one.

    This imports the function's module, and so Spark. Raise Refused.
    """
    found: Callable[..., Any] = named(
        output.reject, _subject_of_reject(output), made=output, option="reject", data=NOTHING_DONE, hint=IT_IS
    )
    _refuse_of_python(found, _subject_of_reject(output).removesuffix(","), made=output, option="reject")
    return found


def with_names(outputs: Iterable[Output]) -> list[Output]:
    """Return the outputs whose files are named by a user's function."""
    return [output for output in outputs if output.sink.names]


def naming(output: Output) -> Naming:
    """Return the function that names an output's files; the output must have one. Raise Refused."""
    found: Naming = named(
        output.sink.names, subject_of_names(output), made=output.sink, option="names", data=NOTHING_DONE, hint=IT_IS
    )
    _refuse_of_python(found, subject_of_names(output).removesuffix(","), made=output.sink, option="names")
    return found


def subject_of_names(output: Output) -> str:
    """Return what an error calls the function that names an output's files."""
    return f"output {output.name}: the function that names files, {output.sink.names!r},"


def state(output: Output) -> str:
    """Return the schema of the state that an output's processor keeps; empty if it has no processor.

    This imports the processor's module, and so Spark. Raise Refused.
    """
    if output.stateful is None:
        return ""
    return api_functions.described_state(output.stateful.processor, f"output {output.name}", transform(output))


def _subject(output: Output, name: str) -> str:
    what = "side" if output.join else "processor" if output.stateful else "transform"
    return f"output {output.name}: the {what} {name!r}"


def _written_in(output: Output) -> dict[str, Any]:
    """Return the declaration and the option that name an output's function, as `resolve` takes them."""
    if output.stateful:
        return {"made": output.stateful, "option": "processor"}
    return {"made": output.join} if output.join else {"made": output, "option": "transform"}


def _subject_of_reject(output: Output) -> str:
    return f"output {output.name}: the function that rejects, {output.reject!r}"


def source_files(output: Output) -> list[str]:
    """Return the files in which an output's functions are written, if they have one."""
    found = []
    named_by = [naming(output)] if output.sink.names else []
    for function in [*functions(output), *([reject(output)] if output.reject else []), *named_by]:
        with suppress(TypeError):
            found.append(inspect.getsourcefile(function))
    return [file for file in found if file]


def fingerprint(pipeline: Pipeline, query: str) -> str:
    """Return the short hash of what decides a query's results: its declaration and the source of its functions."""
    return identity.digest(parts(pipeline, query))


def parts(pipeline: Pipeline, query: str) -> dict[str, Any]:
    """Return what decides a query's results, as the log keeps it and `onlyonce.core.changes` compares it."""
    if query == "receive":
        return identity.receive_parts(pipeline)
    root = pipeline.output(query)
    outputs = [root, *pipeline.made_from(root)]
    sources = {o.name: "" if o.is_result else "\n".join(map(_source, functions(o))) for o in outputs}
    upstream = "\n".join(map(_upstream, pipeline.upstream(root)))
    return identity.output_parts(
        pipeline, query, sources, _source(reject(root)) if root.reject else "", upstream, state(root),
        {o.name: _source(naming(o)) for o in with_names(outputs)},
    )  # fmt: skip


def _upstream(output: Output) -> str:
    """Return the name and the functions' source of an upstream output; the chained window describes its windows."""
    return "\n".join(
        [output.name, *map(_source, functions(output)), *([_source(reject(output))] if output.reject else [])]
    )


def _pipelines_of(named: Path) -> list[Pipeline]:
    path = _file_at(named)
    if path is None and named == settings.shipped():  # nothing was named, and none was found
        raise _none_found(Path.cwd())
    if path is None:
        raise Refused(
            f"no file with declarations at {named}",
            data=NOTHING_DONE,
            hint="set ONLYONCE_PIPELINES or --pipelines to files, or to modules that can be imported",
        )
    module = _import(path)
    found = getattr(module, "PIPELINES", None)
    if not isinstance(found, list | tuple) or not all(isinstance(p, Pipeline) for p in found):
        names = {id(value): name for name, value in reversed(vars(module).items()) if isinstance(value, Pipeline)}
        made = ", ".join(reversed(names.values()))
        line = _line_of_list(path)
        other = None if line else near("PIPELINES", [name for name in vars(module) if name.isupper()])
        misspelt = _line_of_list(path, other) if other else None
        where = f"{path}:{misspelt[0]}: {other} in place of PIPELINES" if misspelt else f"{path} has no list PIPELINES"
        raise Refused(
            f"{path}:{line[0]}: {_wrong_list(found)}" if line else where,
            data=NOTHING_DONE,
            hint=f"{'write' if line or misspelt else 'add at its end'}: PIPELINES = [{made or 'Pipeline(name=…, …)'}]",
        )
    return list(found)


def _wrong_list(found: Any) -> str:
    """Return what is wrong with the value of PIPELINES."""
    if not isinstance(found, list | tuple):
        return f"PIPELINES is {_of_kind(found)}, and not a list of pipelines"
    other = next(one for one in found if not isinstance(one, Pipeline))
    return f"PIPELINES has {_of_kind(other)} in it, which is no Pipeline"


def _of_kind(value: Any) -> str:
    if value is None or isinstance(value, str | int | float):
        return repr(value)[:60]
    return f"a {type(value).__name__}"


def _line_of_list(path: Path, name: str = "PIPELINES") -> tuple[int, int | None] | None:
    """Return the line that sets a list last, and how many elements are written in it; None: no plain line sets it.

    The number is None if the value is not written as a list or tuple.
    """
    found: tuple[int, int | None] | None = None
    for node in ast.parse(path.read_bytes()).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            value = node.value
            found = node.lineno, len(value.elts) if isinstance(value, ast.List | ast.Tuple) else None
    return found


def _none_found(folder: Path) -> Refused:
    """Return the refusal of a folder in which no file of declarations was found, with the files farther below."""
    several = _names_below(folder, 1)
    if several:
        return Refused(
            f"{folder} has several files pipelines.py: {', '.join(several)}",
            data=NOTHING_DONE,
            hint=f"name one: --pipelines {several[0]}",
        )
    deeper = _names_below(folder, 2)
    nothing = f"neither {folder} nor one of its folders has a file pipelines.py"
    if deeper:
        project = deeper[0].partition("/")[0]
        return Refused(
            f"{nothing}; farther below there is {', '.join(deeper[:MOST_NAMED])}"
            + (f" and {len(deeper) - MOST_NAMED} more" if len(deeper) > MOST_NAMED else ""),
            data=NOTHING_DONE,
            hint=f"run the command in the project's folder: cd {shlex.quote(project)}; or name the file: --pipelines "
            f"{shlex.quote(deeper[0])}",
        )
    above = _project_above(folder)
    command = f"cd {shlex.quote(str(above))}" if above else "`onlyonce init` makes one"
    return Refused(
        nothing,
        data=NOTHING_DONE,
        hint=f"run the command in the project's folder ({command}), or name the file: --pipelines or "
        "ONLYONCE_PIPELINES",
    )


def _project_above(folder: Path) -> Path | None:
    """Return the only project in the next folders above, as for a command in its folder `dags`; None for several."""
    for above in folder.parents[:2]:
        if files := [*settings.files_below(above, 0), *settings.files_below(above, 1)]:
            return above if len(files) == 1 else None
    return None


MOST_NAMED = 3
"""How many files an error lists."""


def _names_below(folder: Path, depth: int) -> list[str]:
    return [str(path.relative_to(folder)) for path in settings.files_below(folder, depth)]


def _file_at(named: Path) -> Path | None:
    return named if named.is_file() else _file_of(named)


def _file_of(named: Path) -> Path | None:
    """Return the file of a module: a name without .py that is not a file may be a module (`my_project.pipelines`)."""
    try:
        found = importlib.util.find_spec(named.name) if named.suffix != ".py" else None
    except (ImportError, ValueError):  # no such package
        return None
    return Path(found.origin) if found and found.origin and Path(found.origin).is_file() else None


class FromSource(SourceFileLoader):
    """Compile a file each time.

    Bytecode counts as current if the text has the same size and second of change: Python may run the text from before
    an edit.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file's present text."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _import(path: Path) -> ModuleType:
    # A user's transforms are in the folder of their declarations, or in the package that both belong to. The
    # reference pipelines are part of a package that is on the path already.
    for folder in {path.parent, above_package(path)} if path.parent != settings.ROOT / "jobs" else ():
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    name = f"{_package(path)}{IN_DECLARATIONS}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=FromSource(name, str(path)))
    if spec is None or spec.loader is None or path.suffix != ".py":
        raise Refused(f"{path} is not a Python file", hint="declarations are Python: PIPELINES = [Pipeline(…)]")
    module = importlib.util.module_from_spec(spec)
    # Registered by name only while it is read (a dataclass looks itself up there). Else cloudpickle would refer to its
    # definitions by that name, which executors don't know.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except OnlyonceError as error:
        raise Refused(
            f"{errors.origin_in_file(error, path)}: {error.what}", data=error.data or NOTHING_DONE, hint=error.hint
        ) from error
    except Exception as error:
        at = errors.origin_in_file(error, path)
        if refusal := _of_arguments(str(error), at):
            raise refusal from error
        at, told, hint = syntax.explained_in_file(error) or (at, str(error), _hint(error, path))
        what = f"{at}: {path.name} can't be loaded: {type(error).__name__}: {told}"
        raise Refused(what, data=NOTHING_DONE, hint=hint) from error
    finally:
        sys.modules.pop(spec.name, None)
    return module


def _package(path: Path) -> str:
    """Return the prefix of a file's package if that is imported, so that `from . import` works in the file."""
    package = ".".join(path.parent.relative_to(above_package(path)).parts)
    return f"{package}." if package in sys.modules else ""


def above_package(path: Path) -> Path:
    """Return the folder from which a file's package is imported; its own folder if it is in no package."""
    return next(folder for folder in path.parents if not (folder / "__init__.py").is_file())


ARGUMENTS = re.compile(
    r"(?P<whose>\w+)\.__init__\(\) (?:got an unexpected keyword argument '(?P<unknown>\w+)'"
    r"|missing \d+ required [\w-]+ arguments?: '(?P<missing>\w+)')"
)
"""Python's error for a wrong option of a class whose first options need no name, such as `Fixed`."""
TAKE_ARGUMENTS = {made.__name__: made for made in (Fixed, Sliding, Session, AfterRecords, AfterTime)}
"""These classes. All other declarations name each option, and refuse a wrong one by themselves."""


AN_HOUR = "timedelta(hours=1)"


def _of_arguments(said: str, at: str) -> Refused | None:
    """Return the refusal of an option that one of our classes does not have or lacks; None for another error."""
    found = ARGUMENTS.match(said)
    made = TAKE_ARGUMENTS.get(found["whose"]) if found else None
    if found is None or made is None:
        return None
    known = [*inspect.signature(made).parameters]
    if found["missing"]:
        missing = found["missing"]
        length = durations.is_length(made, missing)
        hint = f"add {missing}=…, which has no default" + (f": for example {missing}={AN_HOUR}" if length else "")
        what = f"lacks `{missing}`"
    else:
        what, hint = f": unknown option {found['unknown']!r}", choose(found["unknown"], known)
        if found["unknown"] in LENGTHS and durations.is_length(made, known[0]):
            needed = [one.name for one in inspect.signature(made).parameters.values() if one.default is one.empty]
            lengths = ", ".join(f"{name}=timedelta({found['unknown']}=…)" for name in needed)
            hint = f"did you mean {found['whose']}({lengths})?"
    return Refused(f"{at}: {found['whose']}{' ' if found['missing'] else ''}{what}", data=NOTHING_DONE, hint=hint)


def _functions_beside(path: Path) -> dict[str, str]:
    """Return the path, as an option takes it, of each function in the modules next to a file, by its name."""
    above = above_package(path)
    beside = (file for file in sorted(path.parent.glob("*.py")) if file != path)
    return {
        name: f"{'.'.join(file.relative_to(above).with_suffix('').parts)}:{name}"
        for file in beside
        for name in _defined_in(file)
    }


def _defined_in(file: Path) -> list[str]:
    """Return the names of a file's functions and classes; none if it can't be read."""
    with suppress(OSError, SyntaxError, ValueError):
        body = ast.parse(file.read_bytes()).body
        return [one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    return []


def _hint(error: Exception, path: Path) -> str:
    # Only the first part is compared: without a folder `jobs` the error names `jobs`.
    old = isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == "jobs"
    if old and "jobs.model" in path.read_text():
        return "declarations import the package now: from onlyonce import Pipeline, Output, Files, Delta, Fixed, …"
    if isinstance(error, ModuleNotFoundError):
        return errors.missing_module(error)
    if isinstance(error, NameError):
        known = sys.modules["onlyonce"].__all__
        if error.name in known:
            return f"add it to the import: from onlyonce import {error.name}"
        if error.name in FROM_PYTHON:
            return f"add the import: {FROM_PYTHON[error.name]}"
        if found := _functions_beside(path).get(str(error.name)):
            return f"if the function of this name is meant: give its path, {found!r}; or import it"
        own = [name for name in errors.names_at(error) if not name.startswith("_")]
        return f"{did_you_mean(near(str(error.name), [*known, *own]))}define it in the file, or import it"
    asked = re.search(r"cannot import name '(\w+)' from ('onlyonce')?", str(error))
    if isinstance(error, ImportError) and asked and (asked[2] or error.path):
        known = sys.modules["onlyonce"].__all__ if asked[2] else _defined_in(Path(str(error.path)))
        return f"{did_you_mean(near(asked[1], known))}correct the import"
    if isinstance(error, KeyError) and (advice := environment.advice_if_not_set(error)):
        return advice
    if uncalled := re.match(r"(\w+)\(\) missing \d+ required positional arguments?: ", str(error)):
        return f"a function is given without parentheses: {uncalled[1]}. If it is to be called, give its arguments"
    if wrong := re.match(r"'(\w+)' is an invalid keyword argument for __new__", str(error)):
        return f"{did_you_mean(near(wrong[1], LENGTHS))}a timedelta takes {', '.join(LENGTHS)}"
    return "correct the file"


LENGTHS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
"""The arguments of `timedelta`."""
FROM_PYTHON = {
    "timedelta": "from datetime import timedelta",
    "datetime": "from datetime import datetime",
    "UTC": "from datetime import UTC",
    "Path": "from pathlib import Path",
    "os": "import os",
}
"""The import of each name that declarations take from Python's own library."""


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__module__}.{function.__qualname__}"


UNREADABLE = (OSError, TypeError, SyntaxError, UnicodeDecodeError)
"""Raised for a function whose module has no text, or one that Python can't read."""


def text_of(named: Callable[..., Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the file of a user's function, the text of its module, and its name there."""
    plain = inspect.unwrap(named)
    file = inspect.getsourcefile(plain)
    if file and errors.is_users(file):
        yield file, Path(file).read_text(), plain.__qualname__
