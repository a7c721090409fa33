"""The plot beside a table."""

from __future__ import annotations

from pathlib import Path


def bars(rates: dict[str, int], path: Path) -> None:
    """Records a second by way, the fastest on top."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "onlyonce"
    from matplotlib import pyplot

    names = sorted(rates, key=rates.__getitem__)
    figure, axes = pyplot.subplots(figsize=(8, 0.5 * len(names) + 1))
    drawn = axes.barh(
        names, [rates[name] for name in names], color=["#c44" if n.startswith("row") else "#47a" for n in names]
    )
    axes.bar_label(drawn, [f"{rates[name]:,}" for name in names], padding=4)
    axes.set_xlabel("records a second")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


OF_AGE = (
    ("batch_seconds", "seconds of a batch", 1.0), ("files", "files of events", 1.0), ("log_bytes", "MB of events' Delta log", 2**20),
    ("database_bytes", "MB of PostgreSQL", 2**20), ("driver_mb", "MB of the driver", 1.0),
)  # fmt: skip


OF_RUNNING = (
    ("batch_seconds", "seconds of a batch", 1.0), ("backfill_seconds", "seconds of a backfill", 1.0), ("checkpoint_files", "files of checkpoints", 1.0),
    ("database_bytes", "MB of PostgreSQL", 2**20), ("driver_mb", "MB of driver, JVM and workers", 1.0),
)  # fmt: skip


OF_KEYS = (
    ("batch_seconds", "seconds of a batch", 1.0), ("drain_seconds", "seconds of a drain", 1.0), ("state_mb", "MB of the checkpoint", 1.0),
    ("driver_mb", "MB of the driver", 1.0),
)  # fmt: skip


def by_age(found: dict[str, dict[str, float]], path: Path) -> None:
    """Each figure by the number of batches that came before."""
    _by_number(found, OF_AGE, "log", path)


def by_round(found: dict[str, dict[str, float]], path: Path) -> None:
    """The same of a pipeline that ran on, round by round."""
    _by_number(found, OF_RUNNING, "linear", path)


def by_keys(found: dict[str, dict[str, float]], path: Path) -> None:
    """Each figure by the number of open keys."""
    _by_number(found, OF_KEYS, "log", path, "open keys")


def _by_number(
    found: dict[str, dict[str, float]], shown: tuple[tuple[str, str, float], ...], scale: str, path: Path, beside: str = "batches before"
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "onlyonce"
    from matplotlib import pyplot

    figure, plots = pyplot.subplots(1, len(shown), figsize=(3 * len(shown), 2.6))
    for axes, (name, title, unit) in zip(plots, shown, strict=True):
        ages = sorted(int(age) for age in found[name])
        axes.plot(ages, [found[name][str(age)] / unit for age in ages], "o-", color="#47a")
        axes.set_xscale(scale)
        axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(beside, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
