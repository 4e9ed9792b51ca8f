"""Colours of the pages and figures, for a light and a dark screen.

Categories use the palette of Okabe and Ito (2008), which people with any common colour vision tell
apart. The diverging scales run from blue (faster than the peers) over a neutral grey to orange
(slower); both arms have equal CIELAB lightness step by step, so that neither side shouts. On the
dark screen the scale is turned inside out: the neutral middle is the darkest, the extremes glow.
"""

from __future__ import annotations

from dataclasses import dataclass

BLUE = "#0072B2"
SKY = "#56B4E9"
GREEN = "#009E73"
ORANGE = "#E69F00"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
YELLOW = "#F0E442"


@dataclass(frozen=True)
class Palette:
    """Every colour that a figure needs on one kind of screen."""

    background: str
    surface: str
    text: str
    border: str
    primary: str
    missing: str
    """Fill of what was not reported; unlike every colour of ``diverging``."""
    neutral: str
    """Bars that are neither good nor bad."""
    unmeasured: str
    """What no phase covers: barely there."""
    gain: str
    loss: str
    marker: str
    """Outline of what is chosen."""
    diverging: tuple[str, ...]
    """From below over neutral to above, an odd number of equal steps."""


LIGHT = Palette(
    background="#FFFFFF",
    surface="#F4F6F9",
    text="#1B2430",
    border="#D9DFE7",
    primary="#0B62A8",
    missing="#8C95A1",
    neutral="#8A94A3",
    unmeasured="#DDE2E8",
    gain=GREEN,
    loss=VERMILLION,
    marker="#111111",
    diverging=(
        "#044E83",
        "#067BCA",
        "#74A6E7",
        "#B8CDF1",
        "#F1F1F1",
        "#EAC5AB",
        "#D39667",
        "#AE6527",
        "#773B00",
    ),
)

DARK = Palette(
    background="#12161C",
    surface="#1C222B",
    text="#E7EBF0",
    border="#323B47",
    primary="#62ADF0",
    missing="#6B7480",
    neutral="#8A94A3",
    unmeasured="#3A434F",
    gain="#1FB88B",
    loss="#E8762C",
    marker="#FFFFFF",
    diverging=(
        "#C2D8FE",
        "#78B4FF",
        "#398CDC",
        "#426591",
        "#404040",
        "#835A3B",
        "#BF783F",
        "#F39D58",
        "#FFCDAB",
    ),
)


def palette_of(theme_type: str | None) -> Palette:
    """The palette for ``light``, ``dark`` or, while the browser has not said yet, light."""
    return DARK if theme_type == "dark" else LIGHT


def theme_options() -> dict[str, str]:
    """Options of the page server that give both screens these colours, by their dotted name."""
    options = {
        "theme.baseRadius": "0.4rem",
        "theme.showWidgetBorder": "true",
        # Small enough that "unknown" and "$1,240,000" fit a card on a telephone.
        "theme.metricValueFontSize": "1.5rem",
    }
    for name, palette in (("light", LIGHT), ("dark", DARK)):
        options |= {
            f"theme.{name}.primaryColor": palette.primary,
            f"theme.{name}.backgroundColor": palette.background,
            f"theme.{name}.secondaryBackgroundColor": palette.surface,
            f"theme.{name}.textColor": palette.text,
            f"theme.{name}.borderColor": palette.border,
            f"theme.{name}.dataframeBorderColor": palette.border,
        }
    return options
