"""Builds these pages as a site: `python3 tools/run.py docs`. A link that leads nowhere ends the build."""

project = "acqstream"
author = "acqstream developers"
copyright = "acqstream developers"  # noqa: A001 # the name that Sphinx reads
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["clients/*.java", "clients/*.c"]
myst_heading_anchors = 4  # pages link to headings as GitHub names them
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure"]  # blocks that tests read have languages of their own
html_theme = "furo"
html_title = "acqstream"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False
