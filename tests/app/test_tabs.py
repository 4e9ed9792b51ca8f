"""How often a tab asks where many are open."""

from __future__ import annotations

import pytest

from steptax.app.tabs import USUAL_TABS, open_tabs, paced_s


@pytest.mark.parametrize(
    ("every_s", "tabs", "paced"),
    [(1, 0, 1), (1, 1, 1), (2, USUAL_TABS, 2), (1, USUAL_TABS + 1, 2), (2, 50, 10), (5, 50, 25)],
)
def test_a_tab_asks_less_often_the_more_there_are(every_s: int, tabs: int, paced: int) -> None:
    assert paced_s(every_s, tabs) == paced


def test_where_no_server_runs_there_is_no_tab() -> None:
    assert open_tabs() == 0
    assert paced_s(2) == 2
