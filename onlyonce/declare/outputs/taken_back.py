"""What a backfill does with the rows that an output has written: whether they can be taken back. Pure.

Who calls it: whoever computes windows again, and what says so before. Errors: Refused.
"""

from __future__ import annotations

from onlyonce.declare.outputs import stateful as states
from onlyonce.declare.outputs.output import Output
from onlyonce.declare.outputs.sent import Sent
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import WINDOW_END, WINDOW_START


def what_to_do(output: Output) -> str:
    """How a backfill changes an output's sink: 'replace', 'correct', 'resend' or 'skip'. Raises Refused.

    Rows can be replaced where each row belongs to one window, and says so: in append, and where the window is among
    the keys.
    """
    sink = output.sink
    if output.stateful:
        raise states.not_recomputed(output)
    if isinstance(sink, Sent):
        return _of_sent(output)
    carried = {"append": True, "files": True, "upsert": {WINDOW_START, WINDOW_END} & {*sink.keys}}
    if carried.get(sink.write, WINDOW_START in sink.keys):
        return "replace"
    if output.on_backfill == "refuse":
        raise Refused(
            f"output {output.name}: what it has {sink.write}ed can't be taken back, since its rows don't say their "
            "window",
            data="nothing was written",
            hint="put window_start among the keys (of a new table), or declare what a backfill does: "
            "on_backfill='skip' leaves this sink as it is"
            + (
                ", 'resend' upserts the new rows over the old"
                if sink.write == "upsert"
                else ", 'correct' (for a new table) keeps what each window added and adds the difference"
            ),
        )
    return output.on_backfill


def _of_sent(output: Output) -> str:
    """What was sent is out of reach."""
    if output.on_backfill == "refuse":
        raise Refused(
            f"output {output.name}: what it has sent ({output.sink.write}) can't be taken back",
            data="nothing was written or sent",
            hint="declare on_backfill='skip' to leave this sink as it is: it keeps the results of the stream; or "
            "'resend' to "
            "send the recomputed rows as well, as new ones",
        )
    return output.on_backfill
