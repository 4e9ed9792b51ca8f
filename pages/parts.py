"""Pieces that every page draws the same way: figures with table and file, numbers, errors."""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import streamlit as st

from steptax.app.charts.card import Field, about_text, basis_text, value_text
from steptax.app.charts.names import without_links
from steptax.app.charts.style import CONFIG
from steptax.app.charts.tables import Table, count_text
from steptax.app.charts.waterfall import Unit
from steptax.app.errors import SteptaxError
from steptax.app.theme import Palette, palette_of
from steptax.pages import reader, replaced, state

_TABLE_LIMIT = 1_000
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&])")
_WITHIN = re.compile(r"([\\`*_\[\]<>~$:])")
#: Where Markdown makes a link of what nobody wrote as one: an address in the name of a job.
_ADDRESS = re.compile(r"(https?:|www|@)(?=\S)", re.IGNORECASE)


def palette() -> Palette:
    """Colours for the reader's screen."""
    return palette_of(st.context.theme.type)


def plain(text: str) -> str:
    """``text`` as it is, where Markdown is expected: dollar signs would start a formula.

    An address in it is text and no link, by a mark of no width that stands in it.
    """
    return _SPECIAL.sub(r"\\\1", _ADDRESS.sub("\\1\N{WORD JOINER}", text))


def name(text: str) -> str:
    """``text`` as the name of a number or a choice, of which what reads a page aloud makes a word.

    That is told every sign, also one that only keeps another from meaning something: so no more of
    them than have a meaning within a line.
    """
    return _WITHIN.sub(r"\\\1", text)


def file_word(text: str) -> str:
    """``text`` as a part of the name of a file: no folder, no sign that a shell knows."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:80]


def figure(
    key: str,
    chart: Any,
    table: Callable[[], Table],
    *,
    alt: str,
    on_select: Callable[[], None] | None = None,
    select: Literal["box", "points"] = "box",
) -> None:
    """A figure with its table and its file under it. ``alt`` says what it shows."""
    selection: dict[str, Any] = (
        {} if on_select is None else {"on_select": on_select, "selection_mode": select}
    )
    if selection:
        replaced.let_go()
    # For a moment a redrawn figure stands beside the one it replaces; the container stands alone.
    with st.container(key=f"{key}_figure"):
        st.plotly_chart(
            without_links(chart),
            key=key,
            config=CONFIG,
            alt=alt,
            theme="streamlit",
            **selection,
        )
    below(key, table)


def below(key: str, table: Callable[[], Table]) -> None:
    """Table and Download, under a figure. The table is made when it is opened."""
    with st.container(horizontal=True, gap="small", key=f"{key}_tools"):
        shown = st.popover(
            "Table", type="tertiary", icon=":material/table:", key=f"{key}_table", on_change="rerun"
        )
        download(key, table)
    if shown.open:
        with shown:
            rows(f"{key}_rows", table())


def download(key: str, table: Callable[[], Table]) -> None:
    """The file of a table; it is made when it is asked for."""
    st.download_button(
        "Download",
        data=reader.file_for(lambda: table().csv()),
        file_name=f"steptax-{key}.csv",
        mime="text/csv",
        key=f"{key}_csv",
        type="tertiary",
        icon=":material/download:",
        on_click="ignore",
    )


def section(title: str) -> None:
    """Heading of a part of a page."""
    st.markdown(f"### {plain(title)}")


def sentence(text: str) -> None:
    """What the page says, in one sentence; the largest text on it."""
    with st.container(key="sentence"):
        st.markdown(f"## {plain(text)}")


def rows(
    key: str, table: Table, *, on_select: Callable[[], None] | None = None, height: Any = "auto"
) -> Any:
    """A sortable table, its total and its note under it; returns what is selected."""
    selection: dict[str, Any] = (
        {} if on_select is None else {"on_select": on_select, "selection_mode": "single-row"}
    )
    shown = st.dataframe(
        table.shown(_TABLE_LIMIT),
        key=key,
        hide_index=True,
        placeholder="unknown",
        column_config=_column_config(table),
        height=height,
        **selection,
    )
    said = [count_text(table)] if table.total else []
    if table.total:
        said = [f"Total of {count_text(table)}", *table.total]
    if len(table.rows) > _TABLE_LIMIT:
        said.append(f"the first {_TABLE_LIMIT:,} of {len(table.rows):,} rows; the file has all")
    if table.note:
        said.append(table.note)
    if said:
        st.caption(plain(" · ".join(said)))
    return shown


def unit_choice(units: Sequence[Unit]) -> Unit:
    """The unit of the ledger; without a price there are no dollars to choose."""
    chosen = st.segmented_control(
        "Unit",
        units,
        default=units[0],
        required=True,
        key=state.UNIT,
        bind="query-params",
        label_visibility="collapsed",
    )
    return chosen or units[0]


def card(fields: Sequence[Field]) -> None:
    """Labelled lines; the formula of a number is on hover, a text may lead to what explains it."""
    lines = []
    for before, field in zip((None, *fields), fields, strict=False):
        # Several lines of one kind share their label.
        label = "" if before is not None and before.key == field.key else html.escape(field.label)
        about = f' title="{html.escape(field.help)}"' if field.help else ""
        missing = " missing" if field.is_missing else ""
        detail = f" <small>{html.escape(field.detail)}</small>" if field.detail else ""
        text = html.escape(field.text)
        if field.link:
            text = f'<a href="{html.escape(field.link)}">{text}</a>'
        lines.append(
            f'<dt{about}>{label}</dt><dd class="v-{field.key}{missing}">{text}{detail}</dd>'
        )
    st.html(f'<style>{_CARD_STYLE}</style><dl class="steptax-card">{"".join(lines)}</dl>')


def number(
    title: str,
    measure: Any,
    metric_id: str,
    *about: str,
    base: str = "",
    spark: Sequence[float] = (),
) -> None:
    """One headline number: what it rests on under it, its formula and all digits on hover.

    ``base`` is what it is a share of, where that is not all there is.
    """
    with st.container(key=f"kpi_{metric_id}", gap=None, border=True):
        st.metric(
            name(title),
            plain(value_text(measure, title)),
            help=paragraphs(about_text(measure, metric_id, *about)),
            chart_data=list(spark) or None,
        )
        st.caption(plain(" · ".join(filter(None, (base, basis_text(measure))))))


def paragraphs(text: str) -> str:
    """``text`` as it is, its empty lines kept as breaks between paragraphs."""
    return "\n\n".join(plain(part) for part in text.split("\n\n"))


@contextlib.contextmanager
def reading(text: str) -> Iterator[None]:
    """``text``, and grey where the page will be, for as long as its numbers are worked out."""
    # At one place of a page there is one sign of this kind.
    words, below = st.container(), st.container()
    with words, st.spinner(text), below, st.skeleton(height=_PAGE_PX):
        yield


def calm() -> None:
    """Hide the sign that the page is at work: on a live page it would blink with every refresh."""
    st.html('<style>[data-testid="stStatusWidget"] { display: none; }</style>')


def error(problem: SteptaxError, key: str = "problem") -> None:
    """What went wrong, where, and what to do; never a traceback. ``key`` is once on a page."""
    text = f"**{plain(reader.told(problem.message))}**"
    if problem.where:
        text += f"  \n{plain(reader.told(problem.where))}"
    if problem.hint:
        text += f"  \nWhat to do: {plain(reader.told(problem.hint))}"
    with st.container(key=key):
        st.error(text, icon=":material/error:")


def notes(texts: Sequence[str], key: str = "notes") -> None:
    """What limits the numbers, said quietly. ``key`` is once on a page."""
    if texts:
        with st.container(key=key):
            st.caption("  \n".join(f":material/info: {plain(text)}" for text in texts))


def _column_config(table: Table) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for column in table.columns:
        common: dict[str, Any] = {
            "label": column.title,
            "help": column.help,
            "width": column.width_px,
        }
        if column.kind == "text":
            made = st.column_config.TextColumn(**common)
        elif column.kind == "time":
            made = st.column_config.DatetimeColumn(
                **common, format="YYYY-MM-DD HH:mm:ss", timezone="UTC"
            )
        else:
            # A heading that is cut off leaves a number without its meaning.
            fits = _LETTER_PX * len(column.title) + _HEAD_PX
            common["width"] = column.width_px or max(_NUMBER_PX, fits)
            made = st.column_config.NumberColumn(**common, format=table.number_format(column))
        config[column.key] = made
    return config


#: About what the sentence and the numbers of a page need.
_PAGE_PX = 420
_NUMBER_PX = 96
#: A letter of a heading, and what stands around it.
_LETTER_PX, _HEAD_PX = 7, 26

_CARD_STYLE = """
.steptax-card { display: grid; grid-template-columns: max-content 1fr; gap: 0.3rem 1.1rem;
  margin: 0 !important; padding: 0 !important; line-height: 1.4; }
.steptax-card dt { opacity: 0.72; }
.steptax-card dt[title] { text-decoration: underline dotted; text-underline-offset: 3px;
  cursor: help; }
.steptax-card dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.steptax-card dd small { font-weight: 400; opacity: 0.8; }
.steptax-card dd.missing { font-weight: 400; font-style: italic; opacity: 0.8; }
@media (max-width: 640px) {
  .steptax-card { grid-template-columns: 1fr; gap: 0; }
  .steptax-card dd { margin-bottom: 0.5rem; }
}
"""
