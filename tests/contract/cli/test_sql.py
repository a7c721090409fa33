"""A person's own statement that PostgreSQL refuses: where it is wrong, and which names there are."""

from __future__ import annotations

import pytest

from onlyonce.cli import shell
from onlyonce.core.errors import Refused
from tests.contract.conftest import Log


@pytest.mark.parametrize(
    "statement, what, hint",
    [
        ("selct 1", ' at character 1: syntax error at or near "selct"', "correct the statement; it may only read"),
        (
            "select b.committd_at from onlyonce.batches b",
            " at character 8: column b.committd_at does not exist",
            "did you mean 'committed_at'?",
        ),
        (
            "select * from onlyonce.batchs",
            ' at character 15: relation "onlyonce.batchs" does not exist',
            "did you mean 'onlyonce.batches'? choose one of: onlyonce.",
        ),
        (
            "select * from reslts.zzz",
            ' at character 15: relation "reslts.zzz" does not exist',
            "a result table is there from its first batch on; choose one of: onlyonce.",
        ),
        ("drop table results.a", "", "it may only read"),
        (
            "create table public.a (b int)",
            ": cannot execute CREATE TABLE in a read-only transaction",
            "it may only read",
        ),
    ],
)
def test_a_refused_statement_names_its_place_and_the_known_names(
    log: Log, monkeypatch: pytest.MonkeyPatch, statement: str, what: str, hint: str
) -> None:
    """As the database answers; nothing is changed."""
    monkeypatch.setattr(shell, "there", lambda url: url())
    with pytest.raises(Refused) as refused:
        shell.read(lambda views: views.free(statement), lambda: log.server.url("reader", log.name))
    assert refused.value.what.startswith(f"the database refuses it{what}") or not what
    assert hint in refused.value.hint
    assert refused.value.data == "nothing was changed; this role only reads"
