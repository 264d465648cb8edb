"""Corrections of finished pages: empty headings of tables, and links of source pages to re-exported
names.
"""

import re

EMPTY_HEADING = re.compile(r"<th(?P<attributes>[^>]*)>\s*(?:<p>\s*</p>)?\s*</th>")
LINK = re.compile(r'(?P<start>href="[^"#]*/(?P<page>[\w.]+)\.html#)(?P<anchor>[\w.]+)"')


def name_the_page(match: re.Match) -> str:
    """Return a link whose anchor begins with the name of its page, if it is of that name or of a
    member of it.
    """
    page = match["page"]
    anchor = match["anchor"]
    _, found, member = f".{anchor}.".rpartition(f".{page.rpartition('.')[2]}.")
    return f'{match["start"]}{f"{page}.{member}".rstrip(".") if found else anchor}"'


def correct(app, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Correct the body of a page.

    A heading without a text is no heading to a screen reader, but a cell. Names that both a module
    and the package export are linked from the page of the source by the name that was seen first,
    which may not be that of their page.
    """
    if "body" in context:
        body = EMPTY_HEADING.sub(r"<td\g<attributes>></td>", context["body"])
        context["body"] = (
            LINK.sub(name_the_page, body) if pagename.startswith("_modules/") else body
        )


def setup(app) -> dict:
    """Correct pages after they are made."""
    app.connect("html-page-context", correct)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
