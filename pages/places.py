"""Where the scripts of the pages are."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).resolve().parent

EXECUTIVE_PAGE = _FOLDER / "executive.py"
FLEET_PAGE = _FOLDER / "fleet.py"
JOB_PAGE = _FOLDER / "job.py"
HEALTH_PAGE = _FOLDER / "health.py"
COMPARE_PAGE = _FOLDER / "compare.py"
WHATIF_PAGE = _FOLDER / "whatif.py"
REFERENCE_PAGE = _FOLDER / "reference.py"
PROCUREMENT_PAGE = _FOLDER / "procurement.py"
