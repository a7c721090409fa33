"""Entry point: raise alerts, each cause once until it clears.

No Spark. `onlyonce alerts` and the DAG `onlyonce_audit` run it.

The hook is ONLYONCE_ALERT_HOOK: 'module:function', called with a dictionary (`onlyonce.core.alerting`), or the
URL of a webhook, which gets it as JSON; its field `text` is what chat programs show. Without a hook the causes are only
kept and shown.

Errors: Refused if the hook is not valid; Retryable if it fails for a cause: then all other causes were told, and the
next run tells this one again. Not promised: that a cause is told only once. A kill between the hook and its note in the
log has it told twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import structlog

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.resolve import named
from onlyonce.asked import parse
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.health import Alerts, Views
from onlyonce.core.alerting import Cause, Lag, causes
from onlyonce.core.errors import Retryable
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing
from onlyonce.operate import audit
from onlyonce.sinks.outbox import send_webhook

log = structlog.get_logger()
Hook = Callable[[dict[str, str]], Any]
PATIENCE_SECONDS = 10.0


def main(argv: list[str]) -> Report:
    """Look, keep, tell; the report has what is raised. Raises Refused, and Retryable when the hook failed."""
    asked = parse("alerts", argv)
    minutes = settings.alert_lag_minutes() if asked.lag_minutes is None else asked.lag_minutes
    tell = hook(settings.alert_hook())
    database = Database(settings.database_url(), "onlyonce-alerts")
    migrate(database.url)
    seen = _look(database, minutes * 60)
    cleared = Alerts(database).keep(seen)
    told, failed = _tell_all(database, tell) if tell else (0, [])
    raised = Alerts(database).raised()
    if failed:
        raise Retryable(
            f"the alert hook failed for {len(failed)} of {len(raised)} alert(s): {failed[0]}",
            data="the data is not affected; the others were told",
            hint="`onlyonce alerts` tries again, and so does the next look; ONLYONCE_ALERT_HOOK names the hook",
        )
    facts = {"raised": len(raised), "told now": told, "cleared": len(cleared), "hook": "set" if tell else "none"}
    title = f"alerts: {len(raised)} raised" if raised else "alerts: none"
    shown = {"alerts": raised, "cleared": [vars(cause) for cause in cleared]}
    return Report(title, f"alerts__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, shown)


def hook(asked: str | None) -> Hook | None:
    """The hook of that name. Raises Refused."""
    if asked is None:
        return None
    if asked.startswith(("http://", "https://")):
        return lambda message: _post(asked, message)
    found: Hook = named(
        asked, f"the alert hook {asked!r}",
        data="nobody was told of anything",
        hint="ONLYONCE_ALERT_HOOK is 'module:function', importable where the audit runs, or a URL of http or https",
    )  # fmt: skip
    return found


def _post(url: str, message: dict[str, str]) -> None:
    try:
        with (
            send_webhook.hold_deadline(httpx.Client()) as client,
            send_webhook.within_deadline(PATIENCE_SECONDS),
            client.stream("POST", url, json=message) as got,
        ):
            got.raise_for_status()  # nothing of the answer's body is read
    except httpx.HTTPStatusError as error:
        # Not its own text: a webhook's URL is a secret.
        raise Retryable(f"the webhook answered {error.response.status_code}") from None
    except httpx.HTTPError as error:
        raise Retryable(f"the webhook did not answer: {type(error).__name__}") from None


def _look(database: Database, lag_seconds: float) -> list[Cause]:
    seen = audit.gather(database)
    near = Collector(database).near_horizon()
    lag = [Lag(**{name: row[name] for name in Lag.__dataclass_fields__}) for row in Views(database).rows("lag")]
    return list(causes(audit.unconserved(seen, declarations.load()), lag, near, lag_seconds))


def _tell_all(database: Database, tell: Hook) -> tuple[int, list[str]]:
    """How many were told, and why others were not. Each in a transaction of its own: what was told is noted at once."""
    told, at = 0, ("", "")
    failed: list[str] = []
    while True:
        with Alerts.once(database) as alerts:
            cause = alerts.untold(at)
            if cause is None:
                return told, failed
            at = (cause.kind, cause.subject)
            try:
                tell(cause.message())
            except Exception as error:  # it is somebody else's code: the other causes are told all the same
                failed.append(str(error) or type(error).__name__)
                log.error("alert hook", cause=cause.what, problem=failed[-1])
                continue
            passing("alerts-after-hook")
            alerts.told(cause)
            told += 1
