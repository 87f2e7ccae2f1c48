"""Docstrings as they are written here, made into what Sphinx reads.

They are plain text with a little Markdown: indented formulas, `names` in single backticks, `Args:` as Google has it,
and in classes one "field: meaning" for each field. In reStructuredText, which Sphinx wants, all of these are
something else.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Any

MODULES = ("gsnmf", "gsnmf.model", "gsnmf.inference")  # whose names can be linked by their last part alone
PARTS = ("cavi", "svi", "mcmc")  # of gsnmf.inference, whose names are linked as cavi.run
SECTIONS = {"Args:": "param", "Attributes:": "ivar", "Returns:": "returns"}
FIELD = re.compile(r"(\w+(?:, \w+)*): +(\S.*)")


def public_names() -> dict[str, str]:
    """From what docstrings call a thing to where the reference has it."""
    found = [(name, f"{module}.{name}") for module in MODULES for name in import_module(module).__all__]
    for part in PARTS:
        names = import_module(f"gsnmf.inference.{part}").__all__
        found += [(f"{part}.{name}", f"gsnmf.inference.{part}.{name}") for name in names]
    often = Counter(name for name, _ in found)
    return {name: where for name, where in found if often[name] == 1}


def mark(text: str, names: dict[str, str]) -> str:
    """`name` as a link, `other code` as code, and nothing that is neither taken for markup."""
    text = re.sub(r"^(\s*)(\w[.)])(?=\s|$)", r"\1\\\2", text)  # "K." would begin a list
    parts = re.split(r"(`[^`]+`)", text)
    for n, part in enumerate(parts):
        if n % 2 == 0:
            parts[n] = re.sub(r"(?<=\w)_(?!\w)", r"\\_", part)  # "unit_" would be a link
            continue
        code = part[1:-1]
        where = names.get(code.removeprefix("gsnmf.inference.").removeprefix("gsnmf.model."))
        parts[n] = f":py:obj:`{code} <{where}>`" if where else f"``{code}``"
        if n + 1 < len(parts) and parts[n + 1][:1].isalnum():
            parts[n] += "\\ "
    return "".join(parts)


def translate(lines: list[str], fields: Collection[str], names: dict[str, str]) -> Iterator[str]:
    """A docstring, line by line, as reStructuredText.

    Args:
        lines: of the docstring, without its indentation.
        fields: of the class that it is of; lines "field: meaning" are about these.
        names: as `public_names` has them.
    """
    section, formula, item = "", False, False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        field = FIELD.match(line.strip())
        if line in SECTIONS:
            section, formula, item = SECTIONS[line], False, False
            yield from ("", f":{section}:" if section == "returns" else "")
            continue
        if line and indent == 0:
            section, formula = "", False
            item = bool(field and set(field[1].split(", ")) <= set(fields))
        if field and ((item and indent == 0) or (section and section != "returns" and indent == 4)):
            for name in field[1].split(", "):
                yield f":{section or 'ivar'} {mark(name, names)}: {mark(field[2], names)}"
        elif indent >= 4 and not section and not item:
            yield from () if formula else ("", "::", "")
            formula = True
            yield line
        elif line.lstrip().startswith((">>>", "...")):
            yield line
        else:
            yield mark(line, names)


def arguments(obj: Any) -> Collection[str]:
    """What a function takes, or a class is made of: the fields of a NamedTuple."""
    try:
        made_of = getattr(obj, "_fields", None) or inspect.signature(obj).parameters
        return [*made_of, *getattr(obj, "__annotations__", ())]
    except (TypeError, ValueError):  # of a property or a module, and of some that are built in C
        return ()


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    names = public_names()

    def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        mine, module = arguments(obj), ".".join(name.split(".")[:3])
        near = {short.split(".")[-1]: where for short, where in names.items() if where.startswith(f"{module}.")}
        near = {short: where for short, where in near.items() if short not in mine}  # in cavi `run` is cavi.run
        lines[:] = translate(list(lines), mine if isinstance(obj, type) else (), names | near)

    def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
        field, of_sklearn = type(obj).__name__ == "_tuplegetter", re.fullmatch(r"set_\w+_request", name)
        return True if field or of_sklearn else None  # a field is described by its class

    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True}
