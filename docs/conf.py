"""The documentation as a site, built by `make docs` into dist/site: all pages of this folder, and the reference from docstrings.

Nothing of it is loaded from another host: the theme is Sphinx's own, and no page has formulas that would want a script.
"""

import perfkit

project = "perfkit"
version = release = perfkit.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["images"]
default_role = "code"  # docstrings mark names with one backtick
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
html_theme = "alabaster"
html_title = f"perfkit {perfkit.__version__}"
html_copy_source = False
html_show_sphinx = False
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_theme_options = {
    "description": "Predict, measure and tune the training of large models",
    "fixed_sidebar": True,
    "page_width": "1100px",
    "sidebar_width": "250px",
}
