"""How Sphinx makes the site of these pages: `make site`.

A page is Markdown that reads well as it stands, too; of MyST it uses tables and links alone. The
reference comes from the docstrings, whose names stand in single back-ticks.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pykclient.version import __version__

project = "pykclient"
author = "the pykclient authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = False  # docstrings name what is no part of the reference, such as Java's classes

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
default_role = "code"

html_theme = "furo"
html_title = f"pykclient {__version__}"
html_copy_source = False
html_show_sphinx = False
