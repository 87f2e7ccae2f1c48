"""How `make docs` builds the site: these pages, and the reference from docstrings.

The whole repository is the source, so that links between docs/, CONTRIBUTING.md and files of code are the same here and
on a code host; only the pages below are built. Warnings are errors, and nothing is loaded from a network at view time.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]  # the package of this checkout, and docstrings.py

from sphinx.util.inspect import TypeAliasForwardRef  # noqa: E402 (as the next)

from gsnmf import __version__  # noqa: E402 (found by the line above)

TypeAliasForwardRef.__repr__ = lambda self: self.name  # else "Array | None" reads TypeAliasForwardRef('Array') | None

project, author, copyright = "gsnmf", "The gsnmf developers", "The gsnmf developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "docstrings"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "notebooks/README.md"]
exclude_patterns = [".*", "**/.*", "demo", "build", "dist", "site", "tests", "benchmarks/results"]

myst_heading_anchors = 3  # as on GitHub

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("Array", "ArrayLike", "NDArray", "Factor", "Structure")}
python_maximum_signature_line_length = 100
autodoc_default_options = {"members": True, "undoc-members": False}
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"gsnmf {release}"
html_static_path, html_css_files = ["static"], ["wide.css"]
html_extra_path = ["front"]  # index.html at the top, which leads to docs/index.html
html_show_sourcelink = False
html_copy_source = False
