"""Sphinx settings; build with ``make docs``."""

import sys
from pathlib import Path

from eigenmesh import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "eigenmesh"
author = "The eigenmesh developers"
copyright = "The eigenmesh developers"
release = version = __version__

extensions = ["myst_parser", "plain_docstrings", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"eigenmesh {release}"
