"""Sphinx settings; build with ``make docs``."""

import os
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.addnodes import pending_xref

from eigenmesh import __version__

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from doc_links import WORDS, inventories, public_names

project = "eigenmesh"
author = "The eigenmesh developers"
copyright = "The eigenmesh developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
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
    "within_subsection_order": "gallery.Chosen",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e6,
    "write_computation_times": False,
}
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"ArrayLike": "numpy.typing.ArrayLike"}
autodoc_default_options = {"members": True}
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 100
autosummary_ignore_module_all = False
napoleon_google_docstring = False
templates_path = ["templates"]
# The gallery's own notes on how long its scripts took are on no page.
exclude_patterns = ["_build", "templates", "sg_execution_times.rst", "gallery/sg_execution_times.rst"]

HERE = Path(__file__).parent
intersphinx_mapping = inventories(HERE / "other_projects.toml", HERE / "_build" / "inventories")
# Projects' own lists come over the network, and a build must also work without one.
if os.environ.get("EIGENMESH_INTERSPHINX"):
    intersphinx_mapping = {project: (url, None) for project, (url, _) in intersphinx_mapping.items()}
# A full name of another project that leads nowhere is an error; any other word in the place of a type is prose.
nitpicky = True
nitpick_ignore_regex = [("py:.*", rf"(?!(?:{'|'.join(intersphinx_mapping)})\.).*")]

# Browsers draw MathML themselves: no script of another host is needed.
html_math_renderer = "mathml"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css", "doors.css"]
html_title = f"eigenmesh {release}"

# What scikit-learn adds to estimators for its own routing of arguments.
ROUTING = ("get_metadata_routing", "set_fit_request", "set_partial_fit_request", "set_transform_request")
# The package itself comes before its parts, which may offer the same class.
NAMES = WORDS | public_names(sorted(path.stem for path in (HERE / "api").glob("eigenmesh*.md")))


def _skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what Python writes about the fields of a NamedTuple, which its class describes, and routing."""
    field = str(getattr(obj, "__doc__", "")).startswith("Alias for field number")
    return True if field or name in ROUTING else None


def _rename(app: Any, doctree: Any) -> None:
    """Let types lead to public names; shape in "array of shape (n, d)" and "name, or None" are prose, not links."""
    for link in list(doctree.findall(pending_xref)):
        if link["reftarget"] in ("shape", "dtype", "name"):
            link.replace_self(link.children)
        else:
            link["reftarget"] = NAMES.get(link["reftarget"], link["reftarget"])


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
    app.connect("doctree-read", _rename)
