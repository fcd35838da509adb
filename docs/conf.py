"""The documentation site: `make site`.

Sphinx with MyST reads the same Markdown files that are read in the repository, and refuses dead links and
anchors; both are maintained, which MkDocs no longer is. The theme loads nothing from elsewhere, so the site
opens from disk.
"""

import re

import fuseline

project = "fuseline"
version = release = fuseline.__version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "kernels/README.md", "docs/**"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "fuseline"
html_copy_source = False
html_show_sphinx = False
# Pygments does not know JSON with comments.
suppress_warnings = ["misc.highlighting_failure"]


def _only_the_line(app, name, content):
    """A block that is run may be marked for the tests; a reader sees the reason beside it."""
    content[0] = re.sub(
        r'<!-- skip: next (?:if\(fast, )?"(.+?)"\)? -->', r"*Not run in every test: \1.*", content[0]
    )


def setup(app):
    app.connect("source-read", _only_the_line)
