"""Sizes are read from headers, never from rubbish; too large images are bad records."""

import os
import pickle
import random
import struct
import zlib

import pytest
import tensorflow as tf
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from plsc_tf.data.conversion.inputs import FilesInput, SourceInput
from plsc_tf.data.conversion.run import ConversionPlan, convert
from plsc_tf.data.image_limit import checked, num_pixels
from plsc_tf.data.images import encode
from plsc_tf.data.load import load
from plsc_tf.data.pairs import Pairs
from plsc_tf.data.pipeline import Batches
from plsc_tf.data.readers.formats import FORMATS
from plsc_tf.data.readers.python import from_generator
from plsc_tf.jobs import convert as convert_command
from plsc_tf.jobs.builders.data import load_pairs
from plsc_tf.options.settings import Settings
from tests.conversion import drawn
from tests.data.conftest import assert_second_is_bad, findings, opened
from tests.marks import slow


def _decoded_size(data):
    try:
        return int(tf.size(tf.io.decode_jpeg(data, channels=3))) // 3
    except tf.errors.ResourceExhaustedError:  # TensorFlow reads JPEG XL, too
        return 1 << 60
    except tf.errors.InvalidArgumentError:
        return 0


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def checked_400(images):
    return checked(images, 400 / 1e6)


def passes(data):
    try:
        return bool(checked_400(tf.constant([data])) == [data])
    except tf.errors.InvalidArgumentError:
        return False


@pytest.mark.parametrize("extra", (b"\xff\0", b"\xff\0\xff", b"\0\xff", b"\0\0"))
def test_bytes_before_a_segment_do_not_hide_its_size(extra):
    # If they did, 4 KB that are judged as a thumbnail would take 0.5 GB in the decoder.
    sizes = [(8, 8), (640, 80)]
    small, large = (encode(Image.new("L", size), "JPEG") for size in sizes)
    at, large_at = small.index(b"\xff\xc0"), large.index(b"\xff\xc0")
    for data in (
        large[:large_at] + extra + large[large_at:],
        large[:large_at] + extra + small[at : at + 2] + large[large_at:],
        large[:large_at] + b"\xff\x00" + small[at : at + 19] + large[large_at:],
    ):
        assert (num_pixels(data) or 0) >= _decoded_size(data)


@pytest.mark.parametrize("count", [1000, slow(100_000)])
def test_no_image_is_decoded_larger_than_it_was_judged(count):
    rng, decoded = random.Random(1), 0
    image = Image.new("RGB", (23, 17), "teal")
    goods = [encode(image, name) for name in ("JPEG", "PNG", "GIF")]
    goods.append(encode(image, "JPEG", progressive=True))
    goods.append(encode(image, "WEBP"))  # 64 bytes took 1.8 GB
    for _ in range(count):
        data = bytearray(rng.choice(goods))
        for _ in range(rng.randrange(1, 4)):
            place, some = rng.randrange(min(len(data), 200)), rng.randbytes(2)
            end = place + rng.choice((0, 1, len(some)))
            data[place:end] = rng.choice((some, b"\xff" + some, b"\xff\x00"))
        num_pixels(bytes(data[: rng.randrange(len(data))]))  # raises nothing
        judged = num_pixels(bytes(data))
        size = _decoded_size(bytes(data)) if (judged or 0) < 10**6 else 0
        assert judged is None or size <= judged
        decoded += bool(size)
        if decoded < 100:  # The pipeline's check is another one.
            passed = passes(bytes(data))
            assert size <= 400 if passed else not 0 < (judged or 0) <= 400
    assert decoded > count / 20


def test_the_scans_of_a_jpeg_are_limited():
    # Each scan of ten bytes costs the decoder a pass over all pixels.
    data = encode(Image.new("L", (4096, 4096)), "JPEG", progressive=True)
    assert num_pixels(data) == 2**24
    assert num_pixels(data + 100 * b"\xff\xda") is None


# A kilobyte held one of the server's two threads for ten seconds.
def test_arithmetic_coding_has_the_usual_scans_only():
    more = encode(Image.new("L", (64, 64)), "JPEG", progressive=True) + 12 * b"\xff\xda"
    assert num_pixels(more) == 4096
    assert num_pixels(more.replace(b"\xff\xc2", b"\xff\xca")) is None


# It is decoded in blocks of 8 x 8: 26 KB took twelve seconds.
def test_the_scans_of_a_narrow_jpeg_are_limited():
    data = encode(Image.new("L", (1, 40_000)), "JPEG", progressive=True)
    data += 10_000 * b"\xff\xda------"
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 100 scans"):
        tf.function(checked)(tf.constant([data]))


def sized(png, width, height):
    return png[:16] + struct.pack(">II", width, height) + png[24:]


def idat(packed):
    return struct.pack(">I", len(packed)) + b"IDAT" + packed + bytes(4)


# libpng unpacks what follows the pixels: 8 MB held a thread for 23 seconds.
def test_a_png_has_no_more_than_its_pixels():
    content = encode(Image.effect_noise((300, 300), 50), "PNG")
    assert num_pixels(content) == 90_000 and len(content) > 1 << 16
    chunk = idat(zlib.compress(bytes(300) + bytes(100 << 20)))
    forged = content[:33] + chunk + content[-12:]
    assert num_pixels(forged) is None
    # What follows the end of the compressed data is left alone: one byte of it held the
    # server for ever.
    chunk = idat(zlib.compress(os.urandom(1 << 16) + bytes(1 << 23)) + b"x")
    more = chunk * 20 + content[-12:]
    assert num_pixels(sized(content[:33] + more, 1000, 1000)) == 1_000_000
    # 64 KB that unpack to 64 MB took half a second, 64 at a time.
    chunk = idat(zlib.compress(bytes(1 << 23)))
    assert len(chunk) < 9_000 and num_pixels(content[:33] + chunk) is None
    # A row of a pixel takes as long as ten pixels.
    assert num_pixels(sized(content[:33], 1, 1_000_000)) == 10_000_000
    # A size that is refused anyway is not unpacked first.
    assert num_pixels(sized(forged, 60_000, 60_000)) == 60_000**2
    # One that is allowed is unpacked, however large.
    chunk = idat(zlib.compress(bytes(280 << 20)))
    large = sized(content[:33] + chunk, 4200, 4000)
    assert (num_pixels(large), num_pixels(large, 17e6)) == (16_800_000, None)


def test_the_compressed_texts_of_a_png_are_limited():
    # The decoder keeps 8 MB for each 8 KB of them: one image would end the server.
    def png(texts):
        info = PngInfo()
        for number in range(texts):
            add = info.add_itxt if number % 2 else info.add_text
            add("Comment", "A" * 1000, zip=True)
        return encode(Image.new("L", (8, 9)), "PNG", pnginfo=info)

    assert num_pixels(png(0)) == num_pixels(png(10)) == 72
    assert num_pixels(png(11)) is None
    # Nor may it have many color profiles: a thousand took 16 seconds.
    chunk = idat(b"a\0\0" + zlib.compress(bytes(1 << 20))).replace(b"IDAT", b"iCCP")
    content = png(0)
    assert num_pixels(content[:33] + chunk + content[33:]) == 72
    assert num_pixels(content[:33] + chunk * 11 + content[33:]) is None


@pytest.mark.parametrize("name", ("PNG", "JPEG", "GIF"))
def test_a_flat_image_counts_as_what_it_costs(name):
    # A row of a million pixels, 1 KB as PNG, would take 1.3 GB while it is resized.
    assert num_pixels(encode(Image.new("L", (60_000, 1)), name)) == 60_000 * 600


def bomb():
    """A JPEG of less than a kilobyte that takes half a gigabyte in the decoder."""
    data = bytearray(encode(Image.new("L", (8, 8)), "JPEG"))
    struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, 13_000, 13_000)
    return bytes(data)


TOO_LARGE = "has 169.00 megapixels; max_megapixels is 16"


# Otherwise, a few downloaded images fill the memory: 16 threads decode at a time.
@pytest.mark.parametrize("use_caching", [False, True])
def test_a_training_names_an_image_that_is_too_large(list_folder, use_caching):
    (list_folder / "images/13.png").write_bytes(bomb())
    options = dict(batch_size=5, image_size=(12, 10), use_caching=use_caching)
    with pytest.raises(ValueError, match=f"line 14 .*13.png.*{TOO_LARGE}"):
        list(load("image_list", list_folder, **options))
    made = load("image_list", list_folder, skip_bad_records=True, **options)
    assert sum(len(labels) for _, labels in made) == 20
    assert list(made.source.skipped) == [13]
    # The limit is an option, and the server's default holds everywhere.
    with pytest.raises(ValueError, match="max_megapixels is 0.0001"):
        list(load("image_list", list_folder, max_megapixels=1e-4, **options))
    assert made.options.max_megapixels == Settings().server.max_megapixels


def test_a_stream_is_limited_too():
    with pytest.raises(ValueError, match=TOO_LARGE):
        list(Batches(from_generator(lambda: iter([(bomb(), 0)]), num_classes=1), 1))


@pytest.mark.parametrize("format", ["tfrecord", "base64"])
@pytest.mark.parametrize("given", ["source", "tfrecord", "base64"])
def test_a_conversion_names_an_image_that_is_too_large(list_folder, given, format):
    if given in FORMATS:
        examples = [(encode(Image.new("L", (8, 8))), 0), (bomb(), 0)]
        paths = drawn.write(given, list_folder, examples, 1)
        source = FilesInput(FORMATS[given], paths)
        place = f"{paths[0]}, {'line 2' if given == 'base64' else 'record 1'}"
    else:
        (list_folder / "images/13.png").write_bytes(bomb())
        source, place = SourceInput(opened("image_list", list_folder), {}), "line 14 "
    with pytest.raises(ValueError, match=f"{place}.*{TOO_LARGE}"):
        convert(source, ConversionPlan(f"{list_folder}/out", format, num_shards=1))


def test_the_check_and_embed_find_an_image_that_is_too_large(list_folder):
    path = list_folder / "images/13.png"
    path.write_bytes(bomb())
    found = findings("image_list", list_folder)[0]
    assert (found["kind"], found["count"]) == ("too_large", 1)
    assert found["first"][0]["detail"] == "169.00 megapixels"
    found = findings("image_list", list_folder, max_megapixels=1e-4)[0]
    assert (found["kind"], found["count"]) == ("too_large", 20)
    paths = [str(path.with_name(name)) for name in ("12.png", "13.png", "14.png")]
    assert_second_is_bad(paths, f"13.png cannot be read: .*{TOO_LARGE}")


# 4 MB of a .bin, or four images of 48 KB, would fill the memory of a machine.
def test_verification_and_previews_decode_no_large_image(tmp_path):
    small, large = (encode(Image.new("L", size)) for size in ((20, 20), (20, 21)))
    (tmp_path / "a.bin").write_bytes(pickle.dumps(([small, large] * 10, [True] * 10)))
    limited = dict(max_megapixels=400 / 1e6, val_targets=(f"{tmp_path}/a.bin",))
    settings = Settings.from_values(dataset_name="folder", **limited)
    (pairs,) = load_pairs(settings).values()
    with pytest.raises(ValueError, match="a.bin, image 1: .*it has 0.00 megapixels"):
        pairs.decoded((8, 8))
    assert pairs.decoded((8, 8), [0]).shape == (1, 8, 8, 3)
    large = encode(Image.new("1", (4096, 4097)))
    with pytest.raises(ValueError, match="it has 16.78 megapixels"):
        Pairs("a", [large], [0], [0], [True]).decoded((8, 8))
    (tmp_path / "k").mkdir()
    (tmp_path / "k/0.png").write_bytes(large)
    given = dict(dataset_name="folder", dataset_dir=str(tmp_path))
    settings = Settings.from_values(preview=f"{tmp_path}/p.png", **given)
    with pytest.raises(ValueError, match="it has 16.78 megapixels"):
        convert_command.convert(settings)
