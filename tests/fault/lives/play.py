"""One life of an output, from its first run to its last: what befalls it, and the strikes on the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.operate import plan
from onlyonce.operate.plan import HINT
from onlyonce.outputs import reprocess
from onlyonce.run import reset
from tests.fault.lives import wanted
from tests.fault.lives.cases import Case
from tests.fault.lives.strikes import Strikes
from tests.support.platform import Platform, Server

EVER = ("--from", "2025-12-31T00:00Z", "--to", "2026-01-02T00:00Z")
LOCAL = ("--master", "local[2]")
DECLARED = "tests/fault/lives/declared.py"


class Life:
    """A case on a platform of its own."""

    def __init__(self, case: Case, server: Server, home: Path, strikes: Strikes, patched: pytest.MonkeyPatch) -> None:
        self.case, self._server, self._strikes, self._patched = case, server, strikes, patched
        self.platform = Platform.make(server, home, DECLARED)
        self._other = server.new_database()
        other = server.url("writer", self._other)
        self.platform.give(patched, TEST_OTHER_DATABASE=other, TEST_ENDPOINT="http://127.0.0.1:9")
        self.struck = 0

    def play(self) -> list[tuple[wanted.Rows, wanted.Rows]]:
        """Live it; gives (wanted, found) of each output."""
        self._declare(changed=False)
        files, invalid = wanted.batches(self.case)
        self.platform.put("shop", "sales-0.jsonl", files[0] + invalid)
        self.platform.run("shop")
        self.platform.put("shop", "sales-1.jsonl", files[1])
        self._step("run", self._run, again=False)
        if self.case.life == "reprocess":  # what it takes in is far ahead: all that comes after it is late
            self.platform.put("shop", "sales-2.jsonl", files[2])
            self._run()
        if self.case.life != "backfill":
            self._step("life", self._befall)
        if self.case.life != "reprocess":
            self.platform.put("shop", "sales-2.jsonl", files[2])
        self._step("end", lambda: self._run("--close"))
        if self.case.life == "backfill":
            self._step("life", self._befall)
        if self.case.life == "planned":
            self._apply()
        conserved = self.platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]
        assert conserved, "the log is not conserved"
        read = [*files, invalid] if invalid else files
        return list(zip(wanted.of_batch(self.case, read), wanted.of_platform(self.platform, self.case), strict=True))

    def leave(self) -> None:
        """The platform goes."""
        self.platform.end_sessions()
        self._server.drop(self.platform.database)
        self._server.drop(self._other)
        shutil.rmtree(self.platform.home, ignore_errors=True)

    def _step(self, name: str, work: Callable[[], object], *, again: bool = True) -> None:
        """A step, which ends where it is struck; then the same once more, if it is to."""
        strike = next((one for one in self.case.strikes if one.at == name), None)
        if strike:
            self._strikes.arm(strike.point, strike.nth)
        try:
            work()
        except Exception:
            if not (strike and self._strikes.struck(strike.point)):
                raise
            self.struck += 1
            self._strikes.disarm()
            self.platform.end_sessions()
            if again:
                work()
        finally:
            self._strikes.disarm()

    def _declare(self, *, changed: bool) -> None:
        asked = {name: value for name, value in asdict(self.case).items() if name in ("kind", "sink", "life")}
        self.platform.give(self._patched, LIVES_CASE=json.dumps(asked | {"changed": changed}))

    def _run(self, *arguments: str) -> None:
        self.platform.run("shop", *arguments)

    def _befall(self) -> None:
        root = "root" if self.case.kind == "made" else "out"
        if self.case.life == "reset":
            self._new_life(root)
        elif self.case.life == "receive new":
            self._new_life("receive")
        elif self.case.life == "changed":
            self._change()
        elif self.case.life == "planned":
            self._declare(changed=True)
            self._apply()
        elif self.case.life == "backfill":
            self.platform.backfill("shop", *EVER)
        elif self.case.life == "reprocess":
            self._declare(changed=True)
            reprocess.main(["shop", "--invalid", "--yes", *LOCAL])

    def _new_life(self, query: str) -> None:
        """Lose the checkpoint.

        Put it back and run once if the new life is refused for a batch that only its state can end, as the refusal
        says.

        Whether a unit of that batch has committed depends on which worker Spark gives the second partition.
        """
        checkpoint = settings.data_dir("shop") / "checkpoints" / query / "1"
        lost = checkpoint.rename(checkpoint.with_name("lost"))
        try:
            reset.new(f"shop/{query}", yes=True)
        except Refused as refused:
            if "put the checkpoint back" not in (refused.hint or ""):
                raise
            lost.rename(checkpoint)
            self.platform.run("shop")
            lost = checkpoint.rename(lost)
            reset.new(f"shop/{query}", yes=True)
        shutil.rmtree(lost)

    def _change(self) -> None:
        """A batch that has units ends as it was declared: the run refuses until the change is put back, as it says."""
        self._declare(changed=True)
        try:
            self.platform.run("shop")
        except Refused:
            self._declare(changed=False)
            self.platform.run("shop")
            self._declare(changed=True)

    def _apply(self) -> None:
        """A plan is refused likewise, before its first step."""
        try:
            plan.main(["shop", "--yes", *LOCAL])
        except Refused as error:
            if error.hint != HINT:
                raise
            self._declare(changed=False)
            self.platform.run("shop")
            self._declare(changed=True)
            plan.main(["shop", "--yes", *LOCAL])
