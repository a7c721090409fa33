"""How `python -m jobs.<name>` ends: the report as log lines or JSON, or the error and its exit code.

Who calls it: the entry points without Spark. What spark-submit runs tells errors to the log as well, and does without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from onlyonce import extras, logs, tables
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.report import Report


def run(main: Callable[[list[str]], Report]) -> None:
    """Run a job with this process's arguments; with --json among them its report is printed as JSON."""
    argv = sys.argv[1:]
    try:
        found = main(argv)
    except OnlyonceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if (refused := extras.missing(error)) is None:
            raise
        print(refused, file=sys.stderr)
        sys.exit(refused.exit_code)
    if "--json" in argv:
        print(tables.as_json(found))
    else:
        logs.tell(found)
