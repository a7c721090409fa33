"""Real processes for the conformance suite: forks of the test, killed or stopped at a fail-point; and answers that get
lost."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from unittest import mock

import psycopg2
from sqlalchemy import RootTransaction
from tenacity import wait_none

from onlyonce import failpoints
from onlyonce.database import connect
from onlyonce.model.errors import OnlyonceError
from onlyonce.testing.suite.log import Log

Work = Callable[[], None]
PATIENCE = 20.0
LOOK_EVERY = 0.01
SESSIONS = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "
    "backend_type = 'client backend'"
)


class Processes:
    """Forks of this process, which have all modules already. Their passes are counted in a folder of this test."""

    def __init__(self, log: Log, folder: Path) -> None:
        self._log, self._folder, self._number = log, folder, 0

    def points(self, work: Work) -> list[str]:
        """The fail-points that a piece of work passes, each once, in their order."""
        record = self._folder / "points"
        record.unlink(missing_ok=True)
        with mock.patch.object(failpoints, "RECORD", str(record)):
            work()
        return list(dict.fromkeys(record.read_text().split()))

    def killed(self, work: Work, point: str) -> None:
        """Do it in a process that is killed at a point; waits until PostgreSQL knows that it is gone."""
        _, status = os.waitpid(self.started(work, point, "kill-process"), 0)
        assert os.WIFSIGNALED(status), f"{point} was not passed: exit {os.waitstatus_to_exitcode(status)}"
        assert os.WTERMSIG(status) == signal.SIGKILL
        self._alone()

    def stopped(self, work: Work, point: str) -> int:
        """Do it in a process that stands still at a point; gives it."""
        child = self.started(work, point, "stop")
        _, status = os.waitpid(child, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"{point} was not passed"
        return child

    def ended_or_waiting(self, child: int) -> None:
        """Wait until it has ended, or waits for a lock in PostgreSQL."""
        _await(lambda: self._has_ended(child) or self._waits(), "the twin neither ends nor waits")

    def ends(self, *children: int) -> list[int]:
        """Let them go on, and wait for their ends; gives their exit codes."""
        for child in children:
            os.kill(child, signal.SIGCONT)
        found = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        self._alone()
        return found

    def started(self, work: Work, point: str = "", action: str = "") -> int:
        """Do it in a process of its own, struck at a point or not."""
        self._number += 1
        if child := os.fork():
            return child
        try:
            counts = self._folder / f"{self._number}"
            counts.mkdir()
            os.environ["ONLYONCE_FAILPOINT_DIR"] = str(counts)
            failpoints._POINTS = {point: (1, action)} if point else {}
            work()
            os._exit(0)
        except OnlyonceError as error:
            os._exit(error.exit_code)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _has_ended(self, child: int) -> bool:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _waits(self) -> bool:
        return bool(self._log.rows(f"{SESSIONS} AND wait_event_type = 'Lock'"))

    def _alone(self) -> None:
        """Until no transaction is open of a process that has ended: its locks go with it."""
        _await(
            lambda: not self._log.rows(f"{SESSIONS} AND xact_start IS NOT NULL"), "a killed process left a transaction"
        )


def _await(condition: Callable[[], object], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(LOOK_EVERY)


def answers_lost() -> Iterator[AbstractContextManager[None]]:
    """The n-th COMMIT of a piece of work loses its answer, for each n, arrived or not. Ends when a piece has fewer."""
    for nth in range(1000):
        for arrived in (True, False):
            seen = [0]
            yield _lost(nth, arrived, seen)
            if seen[0] <= nth:
                return
    raise AssertionError("so many commits are no unit")


@contextmanager
def _lost(nth: int, arrived: bool, seen: list[int]) -> Iterator[None]:
    commit = RootTransaction.commit

    def losing(self: RootTransaction) -> None:
        seen[0] += 1
        if seen[0] - 1 != nth:
            return commit(self)
        if arrived:
            commit(self)
        raise psycopg2.OperationalError("the answer was lost")

    no_pause = mock.patch.object(connect, "wait_exponential_jitter", return_value=wait_none())
    # A task may fail: it is tried again.
    with mock.patch.object(RootTransaction, "commit", losing), no_pause, suppress(OnlyonceError):
        yield
