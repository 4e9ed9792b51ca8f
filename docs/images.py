"""The pictures of the README and of the readers' pages, from what ``make screenshots`` saw.

    python docs/images.py

Each is the top of a page as it stands, at most 200 kB. Needs Pillow, which Streamlit brings along.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
SEEN, KEPT = ROOT / "screenshots", ROOT / "docs" / "images"
#: Page, and how much of it is shown, in pixels of a window of 1440.
PICTURES = {
    "executive": 1180, "job": 1330, "procurement": 1150, "health": 760, "compare": 900,
}  # fmt: skip
MOST_BYTES = 200_000
WIDTH = 1200
#: Colours of a page without photographs; fewer where it would be too large.
_COLOURS = (256, 128, 64, 32)


def main() -> int:
    """Write every picture; returns 1 where a page was not seen."""
    KEPT.mkdir(exist_ok=True)
    missing = [name for name in PICTURES if not (SEEN / f"{name}-wide-light.png").exists()]
    if missing:
        sys.stderr.write(f"not seen yet: {', '.join(missing)}; run make screenshots\n")
        return 1
    for name, height in PICTURES.items():
        with Image.open(SEEN / f"{name}-wide-light.png") as whole:
            top = whole.convert("RGB").crop((0, 0, whole.width, min(height, whole.height)))
        small = top.resize((WIDTH, round(top.height * WIDTH / top.width)), Image.Resampling.LANCZOS)
        target = KEPT / f"{name}.png"
        for colours in _COLOURS:
            small.quantize(colours, dither=Image.Dither.NONE).save(target, optimize=True)
            if target.stat().st_size <= MOST_BYTES:
                break
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
