"""Sphinx settings; build with ``make docs``."""

from eigenmesh import __version__

project = "eigenmesh"
author = "The eigenmesh developers"
copyright = "The eigenmesh developers"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
napoleon_numpy_docstring = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": False}
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"eigenmesh {release}"
