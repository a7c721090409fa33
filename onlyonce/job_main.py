"""End an entry point: print the report as log lines or JSON, or the error, and exit with its code.

For entry points without Spark; applications that spark-submit runs end by `onlyonce.engine.failures`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from onlyonce import console, logs, unexpected
from onlyonce.core.runs import Report
from onlyonce.database import statements


def run(main: Callable[[list[str]], Report]) -> None:
    """Run a job with this process's arguments; with --json among them its report is printed as JSON."""
    argv = sys.argv[1:]
    try:
        statements.check_home()
        found = main(argv)
    except SystemExit as end:
        sys.exit(unexpected.exit_code(end.code))  # type: ignore[arg-type]
    except Exception as raised:
        error = unexpected.told(raised)
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    if "--json" in argv:
        print(console.as_json(found))
    else:
        logs.tell(found)
