"""Sphinx configuration: theme, extensions, and the pages that are copied in from the vignettes and
the benchmarks.
"""

import os
import shutil
import sys
from pathlib import Path

from jinja2 import FileSystemLoader
from jinja2.sandbox import SandboxedEnvironment
from numpydoc import docscrape_sphinx

import bbl

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS), str(DOCS / "_ext")]
import make_install  # noqa: E402  # this and the next: beside this file
import make_notebooks  # noqa: E402

project = "bbl"
author = "the bbl developers"
project_copyright = "2026, the bbl developers"
release = version = bbl.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
    "kernels",  # this and the next five: docs/_ext
    "members",
    "equations",
    "cards",
    "accessible",
    "live_pages",
]
exclude_patterns = ["_build", "_ext", "conf.py", "make_*.py", "**/.ipynb_checkpoints", "**/*.ipynb"]
templates_path = ["_templates"]
nitpicky = False

# -- text and notebooks

myst_enable_extensions = ["amsmath", "deflist", "dollarmath", "substitution"]
myst_substitutions = {"install": make_install.install_text()}  # {{ install }} on a page
myst_heading_anchors = 3
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".py": "myst-nb"}
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
# BBL_DOCS_EXECUTE: "cache" runs what changed, "auto" what has no output, "force" everything, "off"
# nothing
nb_execution_mode = os.environ.get("BBL_DOCS_EXECUTE", "cache")
nb_execution_cache_path = str(DOCS / "_build" / ".jupyter_cache")
nb_execution_show_tb = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_render_markdown_format = "myst"
# of tqdm, for want of a widget in a page
os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")
os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")

# -- API

autosummary_generate = True
autodoc_typehints = "none"
autodoc_use_type_comments = False  # there are none, and finding them takes long
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False
# numpydoc would make an environment for each docstring, and compile its template there again
templates = SandboxedEnvironment(
    loader=FileSystemLoader(Path(docscrape_sphinx.__file__).parent / "templates")
)
docscrape_sphinx.SandboxedEnvironment = lambda loader: templates
default_role = "py:obj"
intersphinx_mapping = (
    {
        "numpy": ("https://numpy.org/doc/stable/", None),
        "pandas": ("https://pandas.pydata.org/docs/", None),
        "python": ("https://docs.python.org/3/", None),
    }
    if os.environ.get("BBL_DOCS_LINKS")  # needs the network
    else {}
)

# -- HTML

html_theme = "pydata_sphinx_theme"
html_title = "bbl"
html_static_path = ["_static"]
html_css_files = ["bbl.css"]
html_search_scorer = str(DOCS / "_static" / "scorer.js")
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "matches_r": []},
}
html_sidebars = {
    "index": [],
    "gallery": [],
    "gallery/*": [],  # the room goes to the code
    "start": [],
    "learn": [],
    "install": [],
    "teaching": [],
    "notebooks": [],
    "coming_from": [],
    "networks_accuracy": [],
    "matches_bnclassify": [],
    "changelog": [],
    "whats_new": [],
    "contributing": [],
    "dev/*": [],
    "which_method": [],
    "faq": [],
    "stability": [],
    "theory": [],
    "matches_r": [],
    "accuracy": [],
    "performance": [],
    "reliability": [],
}
# where the list of versions lies: docs/make_versions.py writes it
if "BBL_DOCS_SWITCHER" in os.environ:
    html_theme_options |= {
        "switcher": {
            "json_url": os.environ["BBL_DOCS_SWITCHER"],
            "version_match": os.environ.get("BBL_DOCS_VERSION", "dev"),
        },
        "check_switcher": False,
        "navbar_start": ["navbar-logo", "version-switcher"],
    }
html_math_renderer = "mathml"
html_show_sourcelink = False


def copy_in() -> None:
    """Copy vignettes and benchmark results below this folder, where Sphinx finds them."""
    gallery = DOCS / "gallery"
    shutil.rmtree(gallery, ignore_errors=True)
    gallery.mkdir()
    for script in sorted((ROOT / "vignettes").glob("*.py")):
        shutil.copy2(script, gallery)
    make_notebooks.main(gallery)
    (DOCS / "notebooks.md").write_text(make_notebooks.index_page("gallery"), encoding="utf-8")
    results = DOCS / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    for path in sorted((ROOT / "benchmarks" / "results").glob("*")):
        if path.suffix in (".md", ".png", ".svg"):
            shutil.copy2(path, results)
    for name, title in (
        ("summary", "Measurements"),
        ("accuracy", "Accuracy"),
        ("coverage", "Coverage"),
        ("annealing", "AIS"),
        ("recovery", "Recovery of couplings"),
        ("posterior", "Coverage of posteriors"),
        ("digits", "Class scores as features of digits"),
    ):
        if not (results / f"{name}.md").exists():
            text = (
                f"# {title}\n\nThis copy of the source does not contain results; the code in "
                "benchmarks produces them.\n"
            )
            (results / f"{name}.md").write_text(text, encoding="utf-8")


copy_in()
exclude_patterns.append("results/*.md")  # parts of the pages on accuracy and performance
