"""Self-contained HTML pages of sections, tables and figures, readable on phones and by screen
readers.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bbl.report.markup import html_text

__all__ = ["Card", "Part", "figure_html", "page_html"]

# of a figure on the page; the stored picture has twice as many, for high-resolution screens
PIXELS_PER_INCH = 80
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f23; --soft: #454c54; --link: #0b5394; --paper: #fff; --code: #f4f6f8; --line: #59636e; --bar: #2f6fae; --minus: #b2412b; --chosen: #dcebf8; --shade: rgba(0, 0, 0, .3); }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
header, main, footer { max-width: 80rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1.5rem 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .5rem; border-top: 1px solid var(--line); }
p, li { max-width: 44rem; overflow-wrap: anywhere; }
a { color: var(--link); }
nav ul { padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; }
nav a { display: inline-block; padding: .35rem 0; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .5rem; }
.scroll { overflow-x: auto; margin: 1rem 0; background:
  linear-gradient(to right, var(--paper) 40%, transparent) left / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) right / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / 1rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) right / 1rem 100% no-repeat scroll; }
.scroll:focus { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; min-width: min(18rem, 80vw); overflow-wrap: anywhere; }
th, td { text-align: right; padding: .25rem .75rem .25rem 0; white-space: nowrap; font-variant-numeric: tabular-nums; }
tbody th, thead td { text-align: left; font-weight: 400; }
tbody th { white-space: normal; overflow-wrap: break-word; min-width: min(5rem, 25vw); max-width: min(45vw, 24rem); }
th.text, td.text { text-align: left; white-space: normal; min-width: min(9rem, 40vw); }
table:has(.text) tbody th { min-width: min(16rem, 40vw); }
thead th { border-bottom: 1px solid var(--line); }
table:not(:has(thead)) td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
table:not(:has(thead)) th { overflow-wrap: normal; }
tfoot td { text-align: left; white-space: normal; color: var(--soft); }
tfoot div { position: sticky; left: 0; width: calc(100vw - 2rem); max-width: 44rem; }
.body, .bbl-summary { display: flex; flex-wrap: wrap; gap: 0 2.5rem; align-items: flex-start; }
.body > *, .bbl-summary > * { max-width: 100%; min-width: 0; }
.bbl-summary > pre, .bbl-summary > p { flex-basis: 100%; box-sizing: border-box; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1rem 0; padding: 0; }
.cards div { background: var(--code); border-radius: .4rem; padding: .6rem .9rem; }
.cards dt { color: var(--soft); font-size: .9rem; }
.cards dd { margin: 0; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.cards small { display: block; font-size: .8rem; color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; background: var(--code); padding: .75rem; }
figure { margin: 1rem 0; }
figcaption { color: var(--soft); max-width: 44rem; }
img { max-width: 100%; height: auto; background: #fff; }
.wide img { max-width: none; }
.hint { display: none; margin: .5rem 0 0; color: var(--soft); font-size: .9rem; }
footer { margin: 3rem auto; color: var(--soft); font-size: .9rem; }
@media (max-width: 480px) {
  table { font-size: .8rem; }
  th, td { padding-right: .4rem; }
  table:not(:has(:nth-child(5 of th, td))) tbody th { min-width: 34vw; }
  .long, .long caption, .long thead, .long tbody, .long tfoot, .long td[colspan] { display: block; }
  .long tr { display: grid; grid-template-columns: repeat(var(--columns), minmax(4.2rem, 1fr)); }
  .long thead td { display: none; }
  .long tbody th { grid-column: 1 / -1; padding: .5rem 0 0; position: sticky; left: 0; max-width: calc(100vw - 2rem); }
  .long tfoot tr { display: block; }
}
@media (min-width: 900px) { tfoot div, .body > figure > figcaption { position: static; width: 0; min-width: 100%; } }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #b6bec6; --link: #8ec3f5; --paper: #14171a; --code: #1f2428; --line: #7d8893; --bar: #6faee6; --minus: #e98a73; --chosen: #1d3a54; --shade: rgba(255, 255, 255, .35); }
  img { filter: brightness(.88); padding: .25rem; }
}
@media print {
  :root { --ink: #1b1f23; --soft: #454c54; --link: #0b5394; --paper: #fff; --code: #f4f6f8; --line: #59636e; --bar: #2f6fae; --minus: #b2412b; --chosen: #dcebf8; }
  .scroll { overflow: visible; background: none; }
  .hint { display: none !important; }
  .wide img { max-width: 100%; }
  img { filter: none; padding: 0; }
  h2 + p { break-after: avoid; }
  nav { display: none; }
  .body, .bbl-summary { display: block; }
  tr, figure { break-inside: avoid; }
  h2, caption, thead { break-after: avoid; }
}
"""  # noqa: E501
# what a page may load: data in the page itself, and nothing from elsewhere
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
MAX_SHRUNK_WIDTH = 640  # pixels; a wider figure scrolls instead of shrinking to the screen
# widths of screens, in pixels, below which a hint says that a wider figure scrolls
HINT_WIDTHS = range(700, 1601, 100)
STYLE += "".join(
    f"@media (max-width: {width}px) {{ .to{width} .hint {{ display: block; }} }}\n"
    for width in HINT_WIDTHS
)


@dataclass(frozen=True)
class Card:
    """A key figure: its name, its value as text, and a few words below it."""

    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Part:
    """A section of a page.

    Attributes
    ----------
    heading : str
    text : sequence of str
        Paragraphs, as plain text.
    cards : sequence of Card
        Key figures above the paragraphs.
    html : sequence of str
        Tables and figures after the paragraphs, as HTML.
    widget : str
        HTML after the tables and figures. Its tables are not put into scrolling boxes.
    """

    heading: str
    text: Sequence[str] = ()
    html: Sequence[str] = field(default_factory=list)
    widget: str = ""
    cards: Sequence[Card] = ()


def figure_html(figure: Any, alt: str, caption: str) -> str:
    """Return a matplotlib figure as an HTML image with embedded data, and close the figure.

    `alt` describes the picture for readers who cannot see it; `caption` is the text below it.
    """
    import matplotlib.pyplot as plt

    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=2 * PIXELS_PER_INCH)
    width, height = (round(float(inches) * PIXELS_PER_INCH) for inches in figure.get_size_inches())
    plt.close(figure)
    png = base64.b64encode(stream.getvalue()).decode()
    image = (
        f'<img src="data:image/png;base64,{png}" width="{width}" height="{height}" '
        f'alt="{html_text(alt)}">'
    )
    if width <= MAX_SHRUNK_WIDTH:
        return f"<figure>{image}<figcaption>{html_text(caption)}</figcaption></figure>"
    image = wrap_in_scroll_box(image, f"Figure: {caption}", css_class="scroll wide")
    # the box and its margins need a few more pixels than the figure
    hint_width = next((limit for limit in HINT_WIDTHS if limit >= width + 32), HINT_WIDTHS[-1])
    return (
        f'<figure class="to{hint_width}"><p class="hint">The figure is wider than the screen: '
        f"scroll it sideways.</p>{image}<figcaption>{html_text(caption)}</figcaption></figure>"
    )


def wrap_in_scroll_box(content: str, label: str, css_class: str = "scroll") -> str:
    """Return HTML content in a box that can be scrolled horizontally with the mouse or the
    keyboard. `label` is its name for screen readers.
    """
    return (
        f'<div class="{css_class}" role="group" aria-label="{html_text(label)}" '
        f'tabindex="0">{content}</div>'
    )


def page_html(
    title: str, lead: str, parts: Sequence[Part], foot: str, *, style: str = "", script: str = ""
) -> str:
    """Return an HTML page without external resources: title, `lead` paragraph, contents, parts,
    `foot`.

    `style` follows the style sheet of all pages, and `script` is run at the end. The page's
    security policy blocks all requests.
    """
    links = "".join(
        f'<li><a href="#part{k}">{html_text(p.heading)}</a></li>' for k, p in enumerate(parts, 1)
    )
    contents = f'<nav aria-label="Sections"><ul>{links}</ul></nav>' if len(parts) > 1 else ""
    closing = f"<script>\n{script}</script>\n" if script else ""
    sections = []
    for k, section in enumerate(parts, 1):
        paragraphs = "".join(f"<p>{html_text(line)}</p>" for line in section.text)
        body = "\n".join(_box_tables(content, section.heading) for content in section.html)
        heading = f'<h2 id="part{k}">{html_text(section.heading)}</h2>'
        sections.append(
            f'<section aria-labelledby="part{k}">{heading}{_cards(section.cards)}{paragraphs}\n'
            f'<div class="body">{body}</div>{section.widget}</section>'
        )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html_text(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{html_text(title)}</h1><p>{html_text(lead)}</p>
{contents}</header>
<main id="content">
{"".join(sections)}
</main>
<footer><p>{html_text(foot)}</p></footer>
{closing}</body>
</html>
"""


def _cards(cards: Sequence[Card]) -> str:
    """Return key figures as an HTML list of names and values, which is empty if there are none."""
    if not cards:
        return ""
    items = "".join(
        f"<div><dt>{html_text(card.name)}</dt><dd>{html_text(card.value)}"
        f"<small>{html_text(card.note)}</small></dd></div>"
        for card in cards
    )
    return f'<dl class="cards">{items}</dl>'


def _box_tables(content: str, heading: str) -> str:
    """Return HTML content with each table in a scrolling box, labelled by its caption or, if it has
    none, by `heading`.
    """

    def box_table(match: re.Match) -> str:
        """Return the matched table in a scrolling box."""
        caption = re.search(r"<caption>(.*?)</caption>", match[0], re.DOTALL)
        label = heading if caption is None else caption[1]
        # the note gets its own div, which `STYLE` keeps in view while the table scrolls
        table = re.sub(
            r"(<tfoot><tr><td[^>]*>)(.*?)(</td>)", r"\1<div>\2</div>\3", match[0], flags=re.DOTALL
        )
        # unescape: wrap_in_scroll_box escapes its label
        return wrap_in_scroll_box(table, html.unescape(label))

    return re.sub(r"<table[ >].*?</table>", box_table, content, flags=re.DOTALL)
