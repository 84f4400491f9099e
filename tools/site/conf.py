"""Sphinx's configuration, read by `python -m tools.site`, which names the folder of pages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from contract.names import RELEASE

project = "Setpoint"
release = version = RELEASE
copyright = "Setpoint maintainers"
extensions = ["myst_parser"]
myst_heading_anchors = 6
html_theme = "furo"
html_title = f"Setpoint {RELEASE}"
html_static_path = [str(Path(__file__).with_name("static"))]
html_favicon = str(Path(__file__).resolve().parents[2] / "static" / "favicon.svg")
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
highlight_language = "text"
nitpicky = True
keep_warnings = True
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
