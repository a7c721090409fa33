"""The plot beside a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OURS = ("exactly_once", "at_least_once", "position_ids")


def bars(rates: dict[str, int], path: Path, title: str) -> None:
    """Records a second by way, the fastest on top."""
    names = sorted(rates, key=rates.__getitem__)
    with _figure(path, (8, 0.5 * len(names) + 1), 1) as [axes]:
        shades = ["#c44" if name in OURS else "#47a" for name in names]
        drawn = axes.barh(names, [rates[name] for name in names], color=shades)
        axes.bar_label(drawn, [f"{rates[name]:,}" for name in names], padding=4)
        axes.set_xlabel("records a second")
        axes.set_title(title, fontsize=9)
        axes.margins(x=0.15)


def by_round_of(found: dict[str, Any], path: Path, title: str) -> None:
    """The seconds of each round of two ways, beside each other; a plot for each size."""
    with _figure(path, (8, 2.8), len(found)) as plots:
        for axes, (lines, one) in zip(plots, sorted(found.items(), key=lambda each: int(each[0])), strict=True):
            for at, (name, seconds) in enumerate(sorted(one["seconds"].items())):
                places = [number + 0.4 * at for number in range(1, len(seconds))]
                axes.bar(places, seconds[1:], 0.38, label=name, color="#c44" if name in OURS else "#47a")
            axes.set_title(f"{int(lines):,} lines: {one['ratio']:.2f} of bare ({title})", fontsize=8)
            axes.set_xlabel("round", fontsize=8)
            axes.set_ylabel("seconds", fontsize=8)
        plots[-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))


def waits(seconds: dict[str, dict[str, dict[str, Any]]], aims: dict[str, float], path: Path, title: str) -> None:
    """From arrival to row: the median and the 99th percentile by way and sink; a plot for each rate."""
    with _figure(path, (9, 3), len(seconds)) as plots:
        for axes, (rate, ways) in zip(plots, sorted(seconds.items(), key=lambda each: int(each[0])), strict=True):
            rows = [(f"{way}, {sink}", ways[way][sink]) for way in sorted(ways) for sink in ("delta", "postgres")]
            for shift, percentile, shade in ((0.2, "p99", "#acd"), (-0.2, "p50", "#47a")):
                drawn = axes.barh(
                    [at + shift for at in range(len(rows))],
                    [one[percentile] for _, one in rows],
                    0.38,
                    color=shade,
                    label=percentile,
                )
                axes.bar_label(drawn, [f"{one[percentile]:.2f}" for _, one in rows], padding=2, fontsize=7)
                axes.axvline(aims[percentile], color=shade, linestyle=":")
            axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=7)
            axes.set_title(f"{int(rate):,} records/s ({title})", fontsize=8)
            axes.set_xlabel("seconds; dotted: the aims", fontsize=8)
            axes.margins(x=0.15)
        plots[-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))


def by_size(found: dict[str, dict[str, float]], path: Path, title: str) -> None:
    """Seconds of the driver by how many files, partitions or windows a batch has."""
    with _figure(path, (7, 3.2), 1) as [axes]:
        for name, each in found.items():
            sizes = sorted(int(size) for size in each)
            axes.plot(sizes, [each[str(size)] for size in sizes], "o-", label=name.replace("_", " "))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("how many a batch has", fontsize=8)
        axes.set_ylabel("seconds of the driver", fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.legend(fontsize=7)


@contextmanager
def _figure(path: Path, size: tuple[float, float], plots: int) -> Iterator[list[Any]]:
    """Plots beside each other, drawn into a file at the end. The same figures give the same file."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "onlyonce", "svg.fonttype": "none"}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, plots, figsize=size, squeeze=False)
    yield [*axes[0]]
    for one in axes[0]:
        one.spines[["top", "right"]].set_visible(False)
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
    found: dict[str, dict[str, float]],
    shown: tuple[tuple[str, str, float], ...],
    scale: str,
    path: Path,
    beside: str = "batches before",
) -> None:
    with _figure(path, (3 * len(shown), 2.6), len(shown)) as plots:
        for axes, (name, title, unit) in zip(plots, shown, strict=True):
            ages = sorted(int(age) for age in found[name])
            axes.plot(ages, [found[name][str(age)] / unit for age in ages], "o-", color="#47a")
            axes.set_xscale(scale)
            axes.set_ylim(bottom=0)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel(beside, fontsize=8)
