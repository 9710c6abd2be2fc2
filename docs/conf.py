"""Sphinx settings; build with ``make docs``."""

import os
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.addnodes import pending_xref

from eigenmesh import __version__

project = "eigenmesh"
author = "The eigenmesh developers"
copyright = "The eigenmesh developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
# The scripts are run by every build; one that fails ends it.
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e6,
    "write_computation_times": False,
}
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
# The gallery's own notes on how long its scripts took are on no page.
exclude_patterns = ["_build", "sg_execution_times.rst", "gallery/sg_execution_times.rst"]

# The tables of names of other projects come over the network, and a build must also work without one, with warnings as
# errors. So links to those pages are made only where somebody asks for them.
if os.environ.get("READTHEDOCS") or os.environ.get("EIGENMESH_INTERSPHINX"):
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "networkx": ("https://networkx.org/documentation/stable", None),
    }

# Browsers draw MathML themselves: no script of another host is needed.
html_math_renderer = "mathml"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_title = f"eigenmesh {release}"


def _skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what Python writes about the fields of a NamedTuple; its class describes them."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def _unlink(app: Any, doctree: Any) -> None:
    """In "array of shape (n, d)" the word shape is prose, not a link to an attribute of that name."""
    for link in list(doctree.findall(pending_xref)):
        if link["reftarget"] in ("shape", "dtype"):
            link.replace_self(link.children)


def _inline_math(translator: Any, node: Any) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block_math(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-read", _unlink)
