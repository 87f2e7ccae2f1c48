"""HTML by function calls, in which text cannot become markup: everything that is not `Html` is escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

VOID = ("br", "img", "input", "meta")
DRAWN = ("circle", "image", "line", "path", "rect", "use")


class Html(str):
    """Text that is markup; plain text becomes markup by `escape`, or as a child of a `tag`."""

    __slots__ = ()


def escape(value: Any) -> Html:
    """Escape any value as text of a page.

    >>> escape("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    if isinstance(value, Html):
        return value
    if isinstance(value, (list, tuple)):
        return Html("".join(map(escape, value)))
    text = "" if value is None else str(value)
    return Html(html.escape(text.encode("utf-8", "replace").decode("utf-8")))  # half a surrogate pair is not valid text


def tag(name: str, *children: Any, **attributes: Any) -> Html:
    """Return an element. Attributes lose a trailing underscore, others become hyphens; False and None are left out.

    >>> tag("p", "a < b", tag("b", 1), class_="x", data_k=0)
    '<p class="x" data-k="0">a &lt; b<b>1</b></p>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        parts.append(label if value is True else f'{label}="{escape(value)}"')
    head = " ".join(parts)
    if name in VOID:
        return Html(f"<{head}>")
    if name in DRAWN and not children:
        return Html(f"<{head}/>")
    return Html(f"<{head}>{escape(children)}</{name}>")


def embed(value: Any) -> Html:
    """Encode a value as JSON for a script element, so that nothing in it can end that element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def commas(parts: Sequence[Html]) -> list[Any]:
    """Return elements with commas between them."""
    return [x for part in parts for x in (", ", part)][1:]


def number(value: float) -> str:
    """Format a number for reading: four digits, with separators of thousands.

    >>> number(1234567.8), number(0.012344), number(-30), number(-0.0), number(1e12)
    ('1,234,568', '0.01234', '−30', '0', '1e+12')
    """
    value = float(value)
    size = f"{abs(value):,.0f}" if 1000 <= abs(value) < 1e11 else f"{abs(value):.4g}"
    return f"−{size}" if value < 0 else size


def percent(share: float) -> str:
    """Format a proportion in percent.

    >>> percent(0.123), percent(0.00001), percent(1)
    ('12.3 %', '< 0.1 %', '100 %')
    """
    value = 100 * float(share)
    if 0 < value < 0.1:
        return "< 0.1 %"
    return f"{value:.1f}".removesuffix(".0") + " %"


def shorten(name: Any, length: int = 18) -> str:
    """Shorten a name to a length."""
    text = str(name)
    return text if len(text) <= length else text[: length - 1] + "…"
