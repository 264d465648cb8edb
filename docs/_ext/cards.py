"""The gallery's cards: for each page its title, its first sentences and one of its own pictures."""

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective


class CardsNode(nodes.General, nodes.Element):
    """Where the cards will stand, until all pages have been read."""


class Cards(SphinxDirective):
    """Cards of pages, and the same pages in a hidden table of contents.

    Each line of the content names a page and, after a colon, which of its pictures to show, counted
    from 1.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        entries = [line.split(":") for line in self.content if line.strip()]
        pages = [f"gallery/{name.strip()}" for name, _ in entries]
        toctree = addnodes.toctree(
            parent=self.env.docname,
            entries=[(None, page) for page in pages],
            includefiles=pages,
            maxdepth=1,
            glob=False,
            hidden=True,
            includehidden=False,
            numbered=0,
            titlesonly=False,
            caption=None,
        )
        pictures = [int(number) - 1 for _, number in entries]
        return [
            nodes.compound("", toctree, classes=["toctree-wrapper"]),
            CardsNode(pages=pages, pictures=pictures),
        ]


def fill(app, doctree, docname) -> None:
    """Replace the place of the cards by the cards; a page that was not run has no picture, and its
    card none either.
    """
    for place in list(doctree.findall(CardsNode)):
        cards = nodes.bullet_list(classes=["cards"])
        for page, number in zip(place["pages"], place["pictures"], strict=True):
            tree = app.env.get_doctree(page)
            uri = app.builder.get_relative_uri(docname, page)
            title = app.env.titles[page].astext()
            found = [image for image in tree.findall(nodes.image) if image["candidates"]]
            card = nodes.list_item()
            if found:
                picture = found[min(number, len(found) - 1)]
                alt = f"Figure of {title}"
                image = nodes.image(
                    uri=picture["uri"], candidates=dict(picture["candidates"]), alt=alt
                )
                card += nodes.paragraph(
                    "", "", nodes.reference("", "", image, refuri=uri, internal=True)
                )
            link = nodes.reference("", title, refuri=uri, internal=True)
            card += nodes.paragraph("", "", link, classes=["title"])
            card += nodes.paragraph(
                "", next(tree.findall(nodes.paragraph)).astext().replace("\n", " ")
            )
            cards += card
        place.replace_self(cards)


def setup(app) -> dict:
    """Register the directive, and fill the cards once all pages are read."""
    app.add_node(CardsNode)
    app.add_directive("gallery-cards", Cards)
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": True}
