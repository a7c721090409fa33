"""The end of an application that spark-submit runs: its report in the log, or the three lines of an error and its exit
code.

Who calls it: `run.stream`, `outputs.backfill`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import structlog

from onlyonce import logs, unexpected
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.report import Report
from onlyonce.session import lost
from onlyonce.session.failures import translate

log = structlog.get_logger()


def ended(error: BaseException) -> OnlyonceError:
    """An error as one of ours. What Spark handed over keeps its traceback in a file too, which the three lines name."""
    return unexpected.told(lost.jvm(error) or translate(error))


def run(main: Callable[[list[str]], Report]) -> None:
    """Run an application with this process's arguments, to its end."""
    from onlyonce.database import formats  # the command line imports this module, and no database

    try:
        formats.check_home()
        found = main(sys.argv[1:])
    except SystemExit as end:
        sys.exit(unexpected.exit_code(end.code))  # type: ignore[arg-type]
    except Exception as raised:
        error = ended(raised)
        log.error("failed", kind=type(error).__name__, what=error.what, data=error.data, next=error.hint)
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    logs.tell(found)
