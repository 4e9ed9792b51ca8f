"""Clicks on the cells of a heat map, which Streamlit's own chart does not report.

A component without a face listens to the figure in the container of a given key and sends back the
row and column that were clicked. Everything a click does can also be done by typing into the number
fields or choosing a row of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

# A refresh may replace the figure at any moment, also between the press and the release of a
# button, and with it every listener on it. So the document is listened to, and the cell follows
# from where the pointer is in the plot that is there on release, and from the ranges of its axes.
_SCRIPT = """
export default function (component) {
  const { data, setTriggerValue } = component;
  const container = '.st-key-' + data.target;
  const MOVED_PX = 5;
  let pressed = null;

  const plotUnder = (x, y) => {
    for (const plot of document.querySelectorAll(container + ' .js-plotly-plot')) {
      const area = plot.querySelector('.nsewdrag');
      const box = area && area.getBoundingClientRect();
      const inside = box && x > box.left && x < box.right && y > box.top && y < box.bottom;
      if (inside) return { plot, box };
    }
    return null;
  };
  const along = ({ range }, share) => Math.round(range[0] + share * (range[1] - range[0]));

  const down = (event) => {
    const isPlain = event.isPrimary && event.button === 0;
    const isHere = isPlain && event.target.closest && event.target.closest(container);
    pressed = isHere && plotUnder(event.clientX, event.clientY) ? event : null;
  };
  const up = (event) => {
    const start = pressed;
    pressed = null;
    if (!start) return;
    const moved = Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY);
    const found = moved < MOVED_PX && plotUnder(event.clientX, event.clientY);
    if (!found) return;
    const { plot, box } = found;
    setTriggerValue('cell', {
      row: along(plot.layout.yaxis, (box.bottom - event.clientY) / box.height),
      column: along(plot.layout.xaxis, (event.clientX - box.left) / box.width),
    });
  };
  const cancel = () => { pressed = null; };
  const listeners = [['pointerdown', down], ['pointerup', up], ['pointercancel', cancel]];
  listeners.forEach(([name, react]) => document.addEventListener(name, react, true));
  return () => {
    listeners.forEach(([name, react]) => document.removeEventListener(name, react, true));
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
