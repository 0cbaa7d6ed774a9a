"""Turns random numbers into decisions, and applies decisions to images.

`decide` does all arithmetic on random numbers for a whole block of images at once;
`apply` carries out the operations on each image.
"""

import math

import tensorflow as tf

from plsc_tf.data.augmentation import operations as ops, randaugment
from plsc_tf.data.augmentation.options import Augmentation

# Number of random numbers per image. Each decision has its own columns, so enabling one
# does not change the others. Columns 28 to 30 are for RandAugment's layers; 6, 7 and 31
# are for `plsc_tf.data.preprocessing`.
NUM_CHANCES = 32
_FLIP, _DOWN, _RIGHT, _ANGLE, AREA, RATIO = range(6)
CROP_Y, CROP_X, _ZOOM, _SHEAR = range(8, 12)
_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE, _LEVELS, _GREY = range(12, 18)
_HALF, _ROW, _COLUMN = range(18, 21)
_LOW, _WAYS = range(21, 23)
_KEEP, _KEEP_RATIO, _KEEP_Y, _KEEP_X = range(23, 27)
_COLOR, _LAYERS = 27, 28
# Fractions of the sides that low resolution keeps, and of the area that a crop in place
# does (AdaFace).
_KEPT = (0.2, 1.0)


def decide(
    chance: tf.Tensor, options: Augmentation | None, size: tuple[int, int]
) -> dict[str, tf.Tensor]:
    """Chooses the random changes for each image of a block.

    Args:
        chance: float32 `[n, 32]`, uniform in [0, 1).
        options: the possible changes; None for no changes.
        size: (height, width) of the images.

    Returns:
        A dict of tensors `[n, ...]` for `apply`, with entries for possible changes
        only.
    """
    if options is None:
        return {}
    columns = tf.unstack(tf.ensure_shape(chance, [None, NUM_CHANCES]), axis=1)
    return _moves(columns, options, size) | _looks(columns, options, size)


def apply(
    image: tf.Tensor, decision: dict[str, tf.Tensor], options: Augmentation | None
) -> tf.Tensor:
    """Applies an image's decisions to it.

    Args:
        image: uint8 `[h, w, 3]`, with the static size that was passed to `decide`.
        decision: the image's row of the tensors that `decide` returned.
        options: the options that were passed to `decide`.

    Returns:
        uint8 `[h, w, 3]`.
    """
    if options is None:
        return image
    moves = ops.warp, ops.mirror, ops.shift, ops.keep_box
    for name, move in zip(("warp", "mirror", "shift", "box"), moves, strict=True):
        if name in decision:
            image = move(image, decision[name])
    for layer in range(int(options.randaugment_layers)):
        chosen = decision[f"operation_{layer}"], decision[f"amount_{layer}"]
        image = randaugment.apply(image, *chosen)
    looks = {
        "recolor": lambda now: ops.change_colors(now, decision["colors"]),
        "grey": ops.to_grey,
        "low": lambda now: ops.low_resolution(now, decision["small"], decision["ways"]),
    }
    for name, change in looks.items():
        if name in decision:
            image = _if(decision[name], change, image)
    if "square" in decision:
        image = ops.cut_out(image, decision["square"])
    if "noise" in decision:
        image = ops.erase(image, decision["noise"], options.erasing)
    return image


def _if(condition, function, image):
    return tf.cond(condition, lambda: function(image), lambda: image)


def _moves(columns, options, size):
    """Decides on geometric changes and RandAugment's layers."""
    moves = {}
    if options.rotate or options.crop_scale or options.zoom or options.shear:
        moves["warp"] = _warps(columns, options, size)
    else:
        if options.flip:
            moves["mirror"] = columns[_FLIP] < options.flip
        if options.shift:
            moves["shift"] = _shifts(columns, options.shift, size)
    if options.crop_in_place:
        moves["box"] = _boxes(columns, options, size)
    for layer in range(int(options.randaugment_layers)):
        chosen = columns[_LAYERS + layer]
        operation, amount = randaugment.choose(chosen, options.randaugment_magnitude)
        moves |= {f"operation_{layer}": operation, f"amount_{layer}": amount}
    return moves


def _looks(columns, options, size):
    """Decides on color changes, low resolution and erased areas."""
    looks = {}
    changes = options.brightness or options.contrast or options.saturation
    if options.color_probability and (changes or options.color_jitter or options.hue):
        jitter = (1 - options.color_jitter, 1 + options.color_jitter)
        looks["colors"] = ops.color_maps(
            _between(columns[_BRIGHTNESS], *jitter),
            options.brightness * _signed(columns[_LEVELS]),
            _between(columns[_CONTRAST], *(options.contrast or jitter)),
            _between(columns[_SATURATION], *(options.saturation or jitter)),
            options.hue * _signed(columns[_HUE]),
        )
        looks["recolor"] = columns[_COLOR] < options.color_probability
    if options.grey:
        looks["grey"] = columns[_GREY] < options.grey
    if options.low_resolution:
        looks["low"], chance = _happens(columns[_LOW], options.low_resolution)
        share = _between(chance, *_KEPT)
        sides = share[:, tf.newaxis] * tf.constant([float(side) for side in size])
        looks["small"] = tf.maximum(tf.cast(sides, tf.int32), 1)
        count = len(ops.METHODS)
        pair = tf.cast(tf.floor(columns[_WAYS] * count**2), tf.int32)
        looks["ways"] = tf.stack([pair // count, pair % count], axis=1)
    if options.cutout:
        # A square may be empty or partly outside of the image.
        half = columns[_HALF] * (options.cutout * min(size) / 2)
        row, column = columns[_ROW] * size[0], columns[_COLUMN] * size[1]
        edges = row - half, column - half, row + half, column + half
        looks["square"] = _corners(*map(tf.round, edges))
    if options.erasing:
        # Only the noise needs a seed: use the bits of two random numbers.
        bits = [tf.bitcast(columns[column], tf.int32) for column in (_ROW, _COLUMN)]
        looks["noise"] = tf.stack(bits, axis=1)
    return looks


def _signed(chance):
    """Maps a uniform number from 0...1 to -1...1."""
    return 2 * chance - 1


def _between(chance, low, high):
    return low + chance * (high - low)


def _shifts(columns, share, size):
    """Returns shifts down and to the right, in pixels, of at most `share` of a side."""
    largest = tf.constant([round(share * side) for side in size])
    chance = tf.stack([columns[_DOWN], columns[_RIGHT]], axis=1)
    steps = tf.floor(chance * tf.cast(2 * largest + 1, tf.float32))
    return tf.cast(steps, tf.int32) - largest


def _happens(chance, probability):
    """Returns whether a change happens, and if so, a new uniform random number."""
    return chance < probability, chance / probability


def _warps(columns, options, size):
    """Combines all geometric changes into one map, which needs one interpolation."""
    height, width = size
    flipped = tf.where(columns[_FLIP] < options.flip, -1.0, 1.0)
    ones = tf.ones_like(flipped)
    across, down, move_x, move_y, angle = ones, ones, 0 * ones, 0 * ones, 0 * ones
    if options.rotate:
        angle = _signed(columns[_ANGLE]) * math.radians(options.rotate)
    if options.crop_scale:
        area = _between(columns[AREA], *options.crop_scale)
        ratio = tf.exp(_signed(columns[RATIO]) * math.log(4 / 3))
        across = tf.minimum(tf.sqrt(area * ratio), 1.0)
        down = tf.minimum(tf.sqrt(area / ratio), 1.0)
        move_x = _signed(columns[CROP_X]) * (1 - across) * (width - 1) / 2
        move_y = _signed(columns[CROP_Y]) * (1 - down) * (height - 1) / 2
    if options.zoom:
        zoom = 1 + options.zoom * _signed(columns[_ZOOM])
        across, down = across / zoom, down / zoom
    if options.shift:
        move = tf.cast(_shifts(columns, options.shift, size), tf.float32)
        move_y, move_x = move_y - move[:, 0], move_x - move[:, 1]
    a, b = flipped * across * tf.cos(angle), -flipped * down * tf.sin(angle)
    d, e = across * tf.sin(angle), down * tf.cos(angle)
    if options.shear:
        slant = options.shear * _signed(columns[_SHEAR])
        b, e = b + a * slant, e + d * slant
    return ops.affine(((a, b), (d, e)), (move_x, move_y), size)


def _boxes(columns, options, size):
    """Returns the rectangles to keep; the whole image if there is no crop."""
    height, width = size
    cropped, chance = _happens(columns[_KEEP], options.crop_in_place)
    area = _between(chance, *_KEPT) * (height * width)
    ratio = tf.exp(_signed(columns[_KEEP_RATIO]) * math.log(4 / 3))
    rows = tf.where(cropped, tf.sqrt(area / ratio), float(height))
    rows = tf.clip_by_value(tf.round(rows), 1, height)
    wide = tf.where(cropped, tf.sqrt(area * ratio), float(width))
    wide = tf.clip_by_value(tf.round(wide), 1, width)
    top = tf.floor(columns[_KEEP_Y] * (height - rows + 1))
    left = tf.floor(columns[_KEEP_X] * (width - wide + 1))
    return _corners(top, left, top + rows, left + wide)


def _corners(top, left, bottom, right):
    """Returns boxes for `operations.keep_box`, float32 `[n, 2, 2]`."""
    return tf.reshape(tf.stack([top, left, bottom, right], axis=1), [-1, 2, 2])
