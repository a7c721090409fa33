"""What a check has found is kept whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce import check, failpoints
from onlyonce.failpoints import FailPoint
from tests.support.shop import SHOP

BEFORE, AFTER = (
    check.Kept({"per_shop": {"type": "struct", "fields": [name]}}, {"per_shop": name}) for name in ("before", "after")
)


@pytest.mark.parametrize("point", ["check-before-keep", "check-after-keep"])
def test_a_kill_while_a_check_is_kept_leaves_all_of_it_or_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The next check is kept as ever, and nothing of the killed one lies beside it."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setenv("ONLYONCE_FAILPOINT_DIR", str(tmp_path))
    check.keep_check(SHOP, "a", BEFORE)
    monkeypatch.setattr(failpoints, "_POINTS", {point: (1, "raise")})
    with pytest.raises(FailPoint):
        check.keep_check(SHOP, "b", AFTER)
    assert (check.kept_check(SHOP, "a"), check.kept_check(SHOP, "b")) == (
        (BEFORE, None) if point == "check-before-keep" else (None, AFTER)
    )

    monkeypatch.setattr("os.getpid", lambda: 1)
    check.keep_check(SHOP, "c", AFTER)

    assert check.kept_check(SHOP, "c") == AFTER
    assert [path.name for path in (tmp_path / "checks").iterdir()] == ["shop.json"]
