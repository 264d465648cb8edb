"""Equations as MathML, which browsers show without scripts from elsewhere, in signs that every font
has.
"""

import re
import unicodedata

# TeX that is changed before it is converted: no space is set around the logarithm, and few fonts
# have the set minus
TEX = ((r"\\ln\b", r"\\,\\ln\\,"), (r"\\setminus\b", r"\\backslash"))
BOLD = re.compile(r"<m([in])>&#x(1D[4-7][0-9A-F]{2});</m\1>")
MID = "<mo>&#x02223;</mo>"
BAR = '<mo stretchy="false" lspace="0.278em" rspace="0.278em">|</mo>'


def to_mathml(tex: str, display: str) -> str:
    """Return an equation as MathML.

    Letters and digits of the mathematical alphabets (bold x) are plain ones with a style: only
    fonts for mathematics have them as characters of their own, others show a box.
    """
    from latex2mathml.converter import convert

    tex = r"\begin{aligned}" + tex + r"\end{aligned}" if r"\\" in tex else tex
    for old, new in TEX:
        tex = re.sub(old, new, tex)
    mathml = (
        convert(tex, display=display)
        .replace(MID, BAR)
        .replace('mathvariant="bold"', 'class="bold"')
    )
    return BOLD.sub(_styled, mathml)


def _styled(found: re.Match) -> str:
    letter = chr(int(found[2], 16))
    if not unicodedata.name(letter).startswith("MATHEMATICAL BOLD "):
        return found[0]
    return (
        f'<m{found[1]} mathvariant="normal" '
        f'class="bold">{unicodedata.normalize("NFKC", letter)}</m{found[1]}>'
    )


def setup(app) -> dict:
    """Register the renderer under the name "mathml"."""
    from docutils.nodes import SkipNode

    def renderer(display: str):
        def visit(translator, node):
            translator.body.append(to_mathml(node.astext(), display))
            raise SkipNode

        return visit, None

    app.add_html_math_renderer("mathml", renderer("inline"), renderer("block"))
    return {"parallel_read_safe": True}
