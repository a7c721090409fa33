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
