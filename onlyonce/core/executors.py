"""Decide when a run on a cluster has lost its executors or Spark's master for good. Pure.

A run that waits in the cluster's queue for its first executor is not lost: it may wait for another run's end. It is
lost if it had executors and has none, or if the standalone master does not know it: that master will never give it one.
"""

from __future__ import annotations

from dataclasses import dataclass

from onlyonce.core.errors import Retryable


@dataclass(frozen=True)
class ClusterState:
    """The driver's view of its cluster.

    jobs        how many of Spark's jobs run or wait
    registered  False only if a standalone master does not know the application
    """

    jobs: int
    executors: int
    registered: bool


@dataclass(frozen=True)
class Watched:
    """The driver's observations so far.

    had_executors  whether it had executors at any time
    lost_since     since when it works without any, in seconds of a monotonic clock; None: it does not
    given_up       whether it has worked without any for longer than its patience
    """

    had_executors: bool = False
    lost_since: float | None = None
    given_up: bool = False

    def after(self, now: ClusterState, at: float, patience_seconds: float) -> Watched:
        """Return what is known after one more check of the cluster.

        Once the run is given up, each later job ends immediately until there is an executor.
        """
        if now.executors:
            return Watched(had_executors=True)
        waits_for_its_first = now.registered and not self.had_executors
        if not now.jobs or waits_for_its_first:
            return Watched(self.had_executors, self.lost_since if self.given_up else None, self.given_up)
        since = at if self.lost_since is None else self.lost_since
        return Watched(self.had_executors, since, self.given_up or at - since >= patience_seconds)


def lost(now: ClusterState, patience_seconds: float) -> Retryable:
    """Return the error of a run that works without executors for longer than its patience."""
    what = (
        "this run has lost all its executors, and its cluster has started no other"
        if now.registered
        else "Spark's master does not know this run: it is down, or was started again without its state"
    )
    return Retryable(
        f"{what} for {patience_seconds:.0f} s",
        data="what is committed stays; the next run finishes the batch that has begun, so nothing is lost or doubled",
        hint="run the same command again when the master and its workers are up (Airflow's retries do so). "
        "ONLYONCE_EXECUTOR_PATIENCE is how long a run waits; spark.deploy.recoveryMode lets a master keep its state",
    )
