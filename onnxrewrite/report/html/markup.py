"""HTML from plain strings: nothing gets into a page but through here, so nothing gets in unescaped.

Knows nothing of models and reports.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence


class Markup(str):
    """Text that is HTML already; any other string is escaped where it is put in."""

    __slots__ = ()


def escaped(text: object) -> Markup:
    """Text as it is to be read; ``Markup`` as it is.  What no encoding has, half a surrogate pair, becomes ``?``."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(str(text).encode("utf-8", "replace").decode("utf-8"), quote=True))


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """``<name attributes>content</name>``; ``class_`` is ``class``, ``data_rule`` ``data-rule``; None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{joined(content)}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """The parts one after the other."""
    return Markup(between.join(map(escaped, parts)))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, named: bool = False, **attributes: object
) -> Markup:
    """A table; a column whose name ends in ``>`` holds numbers, as in ``table.plain_table``.

    ``named``: each cell knows the name of its column, for style sheets that put a row's cells below each other.
    """
    numbers = [c.endswith(">") for c in columns]
    kinds = ["number" if is_number else None for is_number in numbers]
    head = tag("tr", *(tag("th", c.rstrip(">"), scope="col", class_=k) for c, k in zip(columns, kinds, strict=True)))
    names = [c.rstrip(">") if named else None for c in columns]
    body = [
        tag("tr", *(tag("td", cell, class_=k, data_name=n) for cell, k, n in zip(row, kinds, names, strict=True)))
        for row in rows
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body), **attributes), class_="scroll")


def facts(pairs: Iterable[tuple[str, object]], warnings: Iterable[str] = ()) -> Markup:
    """Labelled lines; equal labels that follow each other are written once."""
    marked, items, last = set(warnings), [], ""
    for label, text in pairs:
        kind = "warning" if label in marked else None
        if label != last:
            items.append(tag("dt", label, class_=kind))
        items.append(tag("dd", text))
        last = label
    return tag("dl", *items, class_="facts")


def folded(summary: object, *content: object) -> Markup:
    """Content that is shown when it is asked for."""
    return tag("details", tag("summary", summary), *content)


def json_script(name: str, data: object) -> Markup:
    """Data for the page's script.  No name in it can end the element, for nothing in it looks like a tag."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(f'<script type="application/json" id="{escaped(name)}">{safe}</script>')


def digest(script: str) -> str:
    """The source expression that allows this script, and no other, in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
