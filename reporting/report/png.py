"""Turns a picture into a PNG, with resvg. An SVG needs nothing of this."""

from __future__ import annotations

from platforms.job import RefusedError

NOT_INSTALLED = (
    "a PNG is drawn by resvg, which is not installed: pip install 'resvg-py>=0.5,<0.6' (the extra `report` of the "
    "suite), or write an .svg, which needs nothing"
)
NO_FONT = (
    "this machine has no font, and a PNG would lack all texts: install one (apt install fonts-dejavu-core, "
    "dnf install dejavu-sans-fonts), or write an .svg, which needs none here"
)


def png_of(svg: str, width: int, fonts: str, *, skip_system_fonts: bool = False) -> bytes:
    """The picture as a PNG.

    Args:
        svg: as text.
        width: in px.
        fonts: the families that its texts ask for, as in CSS. resvg takes another one if it finds none of them.
        skip_system_fonts: draw as on a machine without fonts.

    Raises:
        RefusedError: resvg is not installed, or there is no font.
    """
    try:
        import resvg_py
    except ImportError:
        raise RefusedError(NOT_INSTALLED) from None

    def drawn(text: str, pixels: int) -> bytes:
        return bytes(resvg_py.svg_to_bytes(svg_string=text, width=pixels, skip_system_fonts=skip_system_fonts))

    # resvg leaves texts out without a word if it finds no font at all.
    frame = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
    letter = f'<text x="2" y="16" font-size="16" style="font-family:{fonts}">M</text>'
    if drawn(frame.format(letter), 20) == drawn(frame.format(""), 20):
        raise RefusedError(NO_FONT)
    return drawn(svg, width)
