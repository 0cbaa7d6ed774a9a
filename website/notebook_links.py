"""A hook of MkDocs: turns a notebook's links to sources into links to pages."""

import logging
import posixpath
import re

_LOG = logging.getLogger("mkdocs.notebook_links")
_LINK = re.compile(r'href="([^":#]+\.(?:md|ipynb))')


def on_page_content(html, page, files, **_):
    """Does for notebooks what MkDocs does for Markdown; a missing target is logged."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def link(match):
        place = posixpath.join(posixpath.dirname(page.file.src_uri), match[1])
        target = files.get_file_from_path(posixpath.normpath(place))
        if target is None:
            _LOG.warning("%s: no page %s", page.file.src_uri, match[1])
            return match[0]
        return f'href="{target.url_relative_to(page.file)}'

    return _LINK.sub(link, html)
