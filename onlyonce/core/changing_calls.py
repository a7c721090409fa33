"""Find calls of Python's clock and of Python's random numbers in the text of a function. Pure.

A record's value must not come from them: a batch that is tried again after a crash would get different rows. Spark's
own expressions are found in the plan of a function instead (`core.unrepeatable`).

The text of one module is read, and no import is followed. Found are the calls in the function, and in the functions and
classes of the same module that it names. Not found are calls by way of another module, `getattr` or a variable, and a
function that is passed on instead of called (`default_factory=uuid4`). A call that is found may be harmless, such as
one that measures a time for a log line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onlyonce.core.stored_names import OO_INGESTION_TIME

_CLOCK = (
    "gives the time at which it is called",
    f"a column of the record, such as its event time, or {OO_INGESTION_TIME}",
)
_DRAWN = ("draws a new value at each call", "a column of the record, or a hash of its id")
CHANGING = {
    "datetime.datetime.now": _CLOCK, "datetime.datetime.utcnow": _CLOCK, "datetime.datetime.today": _CLOCK,
    "datetime.date.today": _CLOCK, "time.time": _CLOCK, "time.time_ns": _CLOCK, "pandas.Timestamp.now": _CLOCK,
    "pandas.Timestamp.utcnow": _CLOCK, "pandas.Timestamp.today": _CLOCK,
    "uuid.uuid1": _DRAWN, "uuid.uuid4": _DRAWN, "os.urandom": _DRAWN,
    "random.random": _DRAWN, "random.randint": _DRAWN, "random.randrange": _DRAWN, "random.uniform": _DRAWN,
    "random.choice": _DRAWN, "random.choices": _DRAWN, "random.sample": _DRAWN, "random.shuffle": _DRAWN,
    "random.gauss": _DRAWN, "random.normalvariate": _DRAWN, "random.getrandbits": _DRAWN, "random.randbytes": _DRAWN,
    "secrets.token_hex": _DRAWN, "secrets.token_bytes": _DRAWN, "secrets.token_urlsafe": _DRAWN,
    "secrets.randbelow": _DRAWN, "secrets.choice": _DRAWN,
    "numpy.random.rand": _DRAWN, "numpy.random.randn": _DRAWN, "numpy.random.random": _DRAWN,
    "numpy.random.randint": _DRAWN, "numpy.random.choice": _DRAWN, "numpy.random.uniform": _DRAWN,
    "numpy.random.normal": _DRAWN,
}  # fmt: skip
"""Each function by its whole name: why its value differs, and what to use instead. Without clocks that only measure."""


def changing_calls(text: str, name: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield the calls in `name`, a function of a module's text: the line, the call as written, why, and the instead."""
    module = ast.parse(text)
    imported = dict(_imported(module))
    for node in _nodes(module, name):
        if isinstance(node, ast.Call) and (why := CHANGING.get(_whole_name(node.func, imported))):
            yield node.lineno, f"{ast.unparse(node.func)}()", *why


ALSO_CALLED = {"deduplicate": "dropduplicates"}
"""An operator of Spark's plan whose method has another name."""


def lines_of_call(text: str, name: str, called: str) -> Iterator[int]:
    """Yield the lines in `name` at which one of Spark's functions or methods is called, or is in a string of SQL.

    `called`: its name in Spark's plan, which is without regard to upper case and underscores.
    """
    wanted = _folded(called)
    wanted = ALSO_CALLED.get(wanted, wanted)
    for node in _nodes(ast.parse(text), name):
        if isinstance(node, ast.Call) and _folded(ast.unparse(node.func).rpartition(".")[2]) == wanted:
            yield node.func.end_lineno or node.lineno  # a chain of calls begins in the line of the first
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and f"{wanted}(" in _folded(node.value):
            yield node.lineno


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _nodes(module: ast.Module, name: str) -> Iterator[ast.AST]:
    """Yield the nodes of `name`, and of the functions and classes of the module that it names."""
    defined = {
        one.name: one for one in module.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    waiting, seen = [name], {name}
    while waiting:
        for node in ast.walk(defined.get(waiting.pop(), ast.Pass())):
            if isinstance(node, ast.Name) and node.id in defined and node.id not in seen:
                seen.add(node.id)
                waiting.append(node.id)
            yield node


def _imported(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that an import of the module binds, at any depth, with the whole name that it stands for."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield (one.asname, one.name) if one.asname else (one.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                yield one.asname or one.name, f"{node.module}.{one.name}"


def _whole_name(node: ast.expr, imported: dict[str, str]) -> str:
    """Return 'datetime.datetime.now' of an expression like `dt.now`, or an empty string."""
    if isinstance(node, ast.Name):
        return imported.get(node.id, "")
    if isinstance(node, ast.Attribute) and (before := _whole_name(node.value, imported)):
        return f"{before}.{node.attr}"
    return ""
