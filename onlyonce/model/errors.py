"""Every error of the platform. The class tells who must act.

| class              | who must act                                   | exit code |
|--------------------|------------------------------------------------|-----------|
| Retryable          | the same command, run again                    | 75        |
| Superseded         | nobody: another driver is at work              | 69        |
| CommitStateUnknown | the platform: read the log, then decide        | 75        |
| Refused            | the caller: the request is wrong, see the hint | 64        |
| InvariantBroken    | a person: stop, look at the data named         | 70        |

`FunctionFails` is a Refused for the author of a function. `Unexpected` stands for an error that the platform does not
know. It is a Retryable, since it is safe to run the command again.
"""

from __future__ import annotations

from onlyonce.model.visible import visible


class OnlyonceError(Exception):
    """Something went wrong. Base of all errors that the platform raises itself.

    `what` happened, what it means for the `data`, and the `hint`: what to do next. The three are
    printed as three lines and never longer than a screen.
    """

    exit_code = 1

    def __init__(self, what: str, *, data: str = "", hint: str = "") -> None:
        # What happened may quote a record or the name of a file.
        super().__init__(visible(what))
        self.what = visible(what)
        self.data = visible(data)
        self.hint = visible(hint)

    def __str__(self) -> str:
        lines = [self.what]
        if self.data:
            lines.append(f"  data: {self.data}")
        if self.hint:
            lines.append(f"  next: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from Spark's workers to the driver by pickle; keyword arguments need help there.
        return (_rebuild, (type(self), self.what, self.data, self.hint))


def _rebuild(kind: type[OnlyonceError], what: str, data: str, hint: str) -> OnlyonceError:
    return kind(what, data=data, hint=hint)


class Retryable(OnlyonceError):
    """A part that is needed was away. Nothing is half done; the same command may run again."""

    exit_code = 75


class DatabaseAway(Retryable):
    """The log or a sink's database did not answer. The platform asks again by itself, for a bounded time."""


class Superseded(OnlyonceError):
    """A newer driver, or a new life, has taken the lineage. This one stops; what it had committed before stays."""

    exit_code = 69


class CommitStateUnknown(OnlyonceError):
    """The answer to a COMMIT was lost. It is neither done nor failed until the log has been read."""

    exit_code = 75


class Refused(OnlyonceError):
    """The request is wrong, and nothing was done. The hint names the right call."""

    exit_code = 64


class FunctionFails(Refused):
    """A function of the user's fails on rows that it meets: a retry meets them again."""


class Unexpected(Retryable):
    """Nobody has thought of this. Nothing was committed that was not whole, so the same command may run again."""


class InvariantBroken(OnlyonceError):
    """What must hold does not. The platform stops before it makes things worse; a person must look."""

    exit_code = 70


EXIT_CODES: dict[int, type[OnlyonceError]] = {
    kind.exit_code: kind for kind in (CommitStateUnknown, Retryable, Superseded, Refused, InvariantBroken)
}
