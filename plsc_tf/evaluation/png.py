"""The charts of `plsc_tf.evaluation.svg` as pictures of pixels, drawn with Pillow."""

import io

from PIL import Image, ImageDraw, ImageFont

from plsc_tf.evaluation.svg import COLORS, FAINT, GRID, INK, tick_text

# Drawn at twice the size and scaled down, because Pillow does not smooth lines.
OVERSAMPLING = 2
WIDTH, HEIGHT = 640, 400
UNIT = 13 * OVERSAMPLING
LEFT, RIGHT, TOP, BOTTOM = 6 * UNIT, UNIT, 3.6 * UNIT, 4 * UNIT


def chart(title, x, y, curves):
    """Draws curves as one picture.

    Args:
        title: shown above.
        x: `svg.Axis`.
        y: `svg.Axis`.
        curves: list of `svg.Curve`, at most as many as `svg.COLORS`.

    Returns:
        A Pillow image of `WIDTH` × `HEIGHT`.
    """
    size = (WIDTH * OVERSAMPLING, HEIGHT * OVERSAMPLING)
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(UNIT)
    box = (LEFT, TOP, size[0] - RIGHT, size[1] - BOTTOM)
    _axes(draw, font, x, y, box)
    _vertical_text(image, font, y.label, box)
    draw.text((LEFT, 0.9 * UNIT), title, INK, ImageFont.load_default(1.15 * UNIT), "lm")
    _legend(draw, font, curves)
    for color, curve in zip(COLORS, curves, strict=False):
        places = [_place(x, y, box, point) for point in curve.points]
        if len(places) == 1:
            (px, py), r = places[0], 2 * OVERSAMPLING
            draw.ellipse((px - r, py - r, px + r, py + r), color)
        draw.line(places, color, 2 * OVERSAMPLING, joint="curve")
    return image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def png_bytes(image):
    """The picture as the bytes of a PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _place(x, y, box, point):
    left, top, right, bottom = box
    return (
        left + x.place(point[0]) * (right - left),
        bottom - y.place(point[1]) * (bottom - top),
    )


def _axes(draw, font, x, y, box):
    left, top, right, bottom = box
    for tick in x.ticks():
        at = left + x.place(tick) * (right - left)
        draw.line((at, top, at, bottom), GRID, OVERSAMPLING)
        place = (at, bottom + UNIT)
        draw.text(place, tick_text(tick, x.log), FAINT, font, "mm")
    for tick in y.ticks():
        at = bottom - y.place(tick) * (bottom - top)
        draw.line((left, at, right, at), GRID, OVERSAMPLING)
        place = (left - 0.5 * UNIT, at)
        draw.text(place, tick_text(tick, y.log), FAINT, font, "rm")
    draw.line((left, bottom, right, bottom), FAINT, OVERSAMPLING)
    draw.line((left, top, left, bottom), FAINT, OVERSAMPLING)
    draw.text(((left + right) / 2, bottom + 2.8 * UNIT), x.label, INK, font, "mm")


def _vertical_text(image, font, text, box):
    left, top, right, bottom = font.getbbox(text)
    strip = Image.new("RGB", (int(right - left) + 4, int(bottom - top) + 4), "white")
    ImageDraw.Draw(strip).text((2 - left, 2 - top), text, INK, font)
    strip = strip.rotate(90, expand=True)
    middle = (box[1] + box[3]) / 2
    image.paste(strip, (int(0.4 * UNIT), int(middle - strip.height / 2)))


def _legend(draw, font, curves):
    at, middle = LEFT, 2.4 * UNIT
    for color, curve in zip(COLORS, curves, strict=False):
        draw.line((at, middle, at + 2 * UNIT, middle), color, 2 * OVERSAMPLING)
        draw.text((at + 2.5 * UNIT, middle), curve.label, INK, font, "lm")
        at += 4 * UNIT + draw.textlength(curve.label, font)
