"""Clicks on the cells of a heat map, which Streamlit's own chart does not report.

A component without a face listens to the figure in the container of a given key and sends back the
row and column that were clicked. Everything a click does can also be done by typing into the number
fields or choosing a row of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

# The figure is found anew whenever the pointer enters or is pressed, because a refresh may have
# replaced it; the listener is taken off before it is put on, so that there is always exactly one.
_SCRIPT = """
export default function (component) {
  const { data, setTriggerValue } = component;
  const container = '.st-key-' + data.target;
  const clicked = (event) => {
    const point = event.points && event.points[0];
    const place = point && (point.pointNumber || point.pointIndex);
    if (Array.isArray(place)) {
      setTriggerValue('cell', { row: place[0], column: place[1] });
    }
  };
  const plotAt = (node) => {
    const holder = node && node.closest && node.closest(container);
    const plot = holder && holder.querySelector('.js-plotly-plot');
    return plot && plot.on ? plot : null;
  };
  const attach = (event) => {
    const plot = plotAt(event.target);
    if (!plot) return;
    plot.removeListener('plotly_click', clicked);
    plot.on('plotly_click', clicked);
  };
  const events = ['pointerover', 'pointerdown'];
  events.forEach((name) => document.addEventListener(name, attach, true));
  return () => {
    events.forEach((name) => document.removeEventListener(name, attach, true));
    document.querySelectorAll(container + ' .js-plotly-plot').forEach((plot) => {
      if (plot.removeListener) plot.removeListener('plotly_click', clicked);
    });
  };
}
"""

_component: Any = st.components.v2.component("steptax_cell_click", js=_SCRIPT)


def on_cell(target: str, callback: Callable[[int, int], None]) -> None:
    """Call ``callback(row, column)`` when a cell of the figure with key ``target`` is clicked."""
    key = f"{target}_click"

    def changed() -> None:
        cell = st.session_state[key].cell
        if cell is not None:
            callback(int(cell["row"]), int(cell["column"]))

    _component(data={"target": target}, key=key, on_cell_change=changed)
