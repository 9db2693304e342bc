"""Tables of the pages that can be searched and sorted, by plain links and a form: no script is needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape, unescape
from urllib.parse import parse_qs, urlencode

_TAG = re.compile(r"<[^>]*>")
_LONGEST_SEARCH = 100


@dataclass(frozen=True)
class Cell:
    """What a table shows at one place, as HTML, and what it is sorted by; None comes last."""

    html: str
    key: float | str | None = None

    @property
    def text(self) -> str:
        return unescape(_TAG.sub(" ", self.html))

    def order(self, is_number: bool) -> float | str | None:
        """What it is sorted by: in a column of numbers its number, else its number or text."""
        return self.key if is_number or self.key is not None else self.text.strip().lower() or None


Row = Sequence[Cell]


@dataclass(frozen=True)
class ListView:
    """What a visitor wants to see of a table: rows that match the search, sorted by this column."""

    search: str = ""
    column: str = ""
    descending: bool = False

    @classmethod
    def of(cls, query: str) -> ListView:
        """From the part of an address after `?`; whatever makes no sense is left out."""
        try:
            parameters = parse_qs(query[:2000], max_num_fields=20)
        except ValueError:
            parameters = {}
        search, column, order = (parameters.get(name, [""])[-1] for name in ("q", "sort", "order"))
        search = "".join(letter for letter in search if letter.isprintable())
        return cls(search[:_LONGEST_SEARCH].strip(), column[:_LONGEST_SEARCH], order == "desc")

    def rows(self, heads: Sequence[str], rows: Iterable[Row]) -> list[Row]:
        """Those that contain every word, in the requested order; without one, as they are."""
        wanted = self.search.lower().split()
        kept = [row for row in rows if _has_all(row, wanted)]
        names = [head.lstrip("#") for head in heads]
        if self.column not in names:
            return kept
        index = names.index(self.column)
        orders = [row[index].order(heads[index].startswith("#")) for row in kept]
        is_text = any(isinstance(order, str) for order in orders)
        known = [pair for pair in zip(orders, kept, strict=True) if pair[0] is not None]
        known.sort(key=lambda pair: _sortable(pair[0], is_text), reverse=self.descending)
        unknown = [row for order, row in zip(orders, kept, strict=True) if order is None]
        return [row for _, row in known] + unknown

    def address(self, base: str, column: str) -> str:
        """The link of a column head: sorted by its column, the second time in reverse."""
        order = "desc" if column == self.column and not self.descending else "asc"
        parameters = {"q": self.search, "sort": column, "order": order}
        return f"{base}?{urlencode({name: value for name, value in parameters.items() if value})}"

    def form(self, base: str, heads: Sequence[str], shown: int, of: int) -> str:
        """The field to search in and the choice of a column, which a phone has no heads for."""
        names = [head.lstrip("#") for head in heads]
        options = "".join(
            f"<option{' selected' if name == self.column else ''}>{escape(name)}</option>" for name in names
        )
        orders = (("asc", "ascending"), ("desc", "descending"))
        ways = "".join(
            f'<option value="{value}"{" selected" if (value == "desc") == self.descending else ""}>{label}</option>'
            for value, label in orders
        )
        count = f"{shown} of {of}" if self.search else f"{of}"
        clear = f' <a href="{escape(base)}">show all</a>' if self.search or self.column else ""
        return (
            f'<form class="look" action="{escape(base)}" method="get" role="search">'
            f'<label>Search <input type="search" name="q" value="{escape(self.search)}" maxlength="100"></label>'
            f'<label>Sort by <select name="sort"><option value="">–</option>{options}</select></label>'
            f'<label><span class="unseen">Order</span><select name="order">{ways}</select></label>'
            f"<button>Show</button><span>{count}{clear}</span></form>"
        )


def table(
    heads: Sequence[str],
    rows: Iterable[Row],
    marked: set[int] | None = None,
    sorting: tuple[ListView, str] | None = None,
) -> str:
    """A head that begins with # is a column of numbers; `sorting` makes heads links below an address."""
    kinds = [' class="number"' if head.startswith("#") else "" for head in heads]
    names = [head.lstrip("#") for head in heads]
    tops = "".join(_head(name, kind, sorting) for name, kind in zip(names, kinds, strict=True))
    lines = []
    for index, row in enumerate(rows):
        css_class = ' class="first"' if marked and index in marked else ""
        cells = "".join(
            f'<td{kind} data-label="{escape(name)}">{cell.html}</td>'
            for kind, name, cell in zip(kinds, names, row, strict=True)
        )
        lines.append(f"<tr{css_class}>{cells}</tr>")
    return f"<section><table><thead><tr>{tops}</tr></thead><tbody>{''.join(lines)}</tbody></table></section>"


def listing(heads: Sequence[str], rows: Sequence[Row], view: ListView, base: str) -> str:
    """A table with its form, as the visitor asked to see it."""
    shown = view.rows(heads, rows)
    empty = "<section><p>No rows match.</p></section>"
    body = table(heads, shown, sorting=(view, base)) if shown else empty
    return view.form(base, heads, len(shown), len(rows)) + body


def _head(name: str, kind: str, sorting: tuple[ListView, str] | None) -> str:
    if sorting is None:
        return f"<th scope=col{kind}>{escape(name)}</th>"
    view, base = sorting
    way = ("descending" if view.descending else "ascending") if view.column == name else ""
    sign = {"descending": " ▼", "ascending": " ▲"}.get(way, "")
    state = f' aria-sort="{way}"' if way else ""
    link = f'<a href="{escape(view.address(base, name))}">{escape(name)}{sign}</a>'
    return f"<th scope=col{kind}{state}>{link}</th>"


def _has_all(row: Row, search: Sequence[str]) -> bool:
    text = " ".join(cell.text for cell in row).lower()
    return all(label in text for label in search)


def _sortable(key: float | str | None, is_text: bool) -> tuple[float, str]:
    return (0.0, str(key)) if is_text or not isinstance(key, int | float) else (float(key), "")
