"""A diagram drawn with box signs becomes a picture: each sign its lines, each word a text of just its cells' width.

As text it would depend on the reader's font, in which box characters often don't meet. On a page it stays what it is: a
block of the language `diagram`.
"""

from __future__ import annotations

import re
from html import escape

WIDTH, HEIGHT = 8, 18
"""Of one sign, in pixels."""
ARMS = {
    "─": "lr",
    "│": "ud",
    "┌": "rd",
    "┐": "ld",
    "└": "ur",
    "┘": "ul",
    "├": "urd",
    "┤": "uld",
    "┬": "lrd",
    "┴": "lru",
    "┼": "lrud",
    "▶": "l",
    "◀": "r",
    "▼": "u",
    "▲": "d",
}
"""In which directions each sign has a line from its middle."""
TIPS = {"▶": (1, 0), "◀": (-1, 0), "▼": (0, 1), "▲": (0, -1)}
FENCE = re.compile(r"^```diagram(?: (?P<title>[^\n]+))?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def drawn(markdown: str) -> str:
    """The page with each block of the language `diagram` as a picture."""
    return FENCE.sub(lambda found: _figure(found["body"].rstrip("\n"), found["title"] or "diagram"), markdown)


def _figure(text: str, title: str) -> str:
    rows = text.split("\n")
    lines = "".join(part for y, row in enumerate(rows) for part in _lines(row, y))
    tips = "".join(part for y, row in enumerate(rows) for part in _tips(row, y))
    words = "".join(part for y, row in enumerate(rows) for part in _words(row, y))
    width, height = max(map(len, rows)) * WIDTH, len(rows) * HEIGHT
    return (
        f'<div class="diagram"><svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<path class="line" d="{lines}"/><path class="tip" d="{tips}"/>{words}</svg></div>'
    )


def _lines(row: str, y: int) -> list[str]:
    parts = []
    for x, sign in enumerate(row):
        cx, cy = _middle(x, y)
        ends = {
            "l": f"H{x * WIDTH:g}",
            "r": f"H{(x + 1) * WIDTH:g}",
            "u": f"V{y * HEIGHT}",
            "d": f"V{(y + 1) * HEIGHT}",
        }
        parts += [f"M{cx:g} {cy:g}{ends[arm]}" for arm in ARMS.get(sign, "")]
    return parts


def _tips(row: str, y: int) -> list[str]:
    return [_tip(*_middle(x, y), *TIPS[sign]) for x, sign in enumerate(row) if sign in TIPS]


def _middle(x: int, y: int) -> tuple[float, float]:
    return (x + 0.5) * WIDTH, (y + 0.5) * HEIGHT


def _tip(cx: float, cy: float, dx: int, dy: int) -> str:
    size, half = 5.0, 4.0
    left, right = (cx - dx * 2 - dy * half, cy - dy * 2 - dx * half), (cx - dx * 2 + dy * half, cy - dy * 2 + dx * half)
    return f"M{left[0]:g} {left[1]:g}L{cx + dx * size:g} {cy + dy * size:g}L{right[0]:g} {right[1]:g}Z"


def _words(row: str, y: int) -> list[str]:
    plain = "".join(" " if sign in ARMS else sign for sign in row)
    return [
        f'<text x="{found.start() * WIDTH}" y="{y * HEIGHT + 13}" textLength="{len(found[0]) * WIDTH}" '
        f'lengthAdjust="spacingAndGlyphs">{escape(found[0])}</text>'
        for found in re.finditer(r"\S+(?: \S+)*", plain)
    ]
