"""Texts become checked values and come back unchanged."""

import numpy as np
import pytest

from plsc_tf.flags.option import OptionGroup, option, options_of


class Sample(OptionGroup):
    whole: int = option(3, "count", within="[1, 9]")
    real: float = option(0.5, "share", within="[0, 1)")
    switch: bool = option(False, "switch")
    word: str = option("", "any text")
    kind: str = option("red", "color", choices="red green")
    limit: float | None = option(None, "limit")
    sizes: tuple[int, ...] = option((1, 2), "sizes")
    names: tuple[str, ...] = option((), "names")


OPTIONS = {item.name: item for item in options_of(Sample)}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("whole", " 7 ", 7),
        ("real", "1e-3", 0.001),
        ("real", "0", 0.0),
        *(("switch", text, True) for text in ("True", "yes", "1")),
        *(("switch", text, False) for text in ("FALSE", "no", "0")),
        ("word", "", ""),
        ("word", "None", ""),
        ("kind", "Green", "green"),
        *(("limit", text, None) for text in ("None", "none", "")),
        ("limit", "-2", -2.0),
        ("limit", "0.30000000000000004", 0.1 + 0.2),
        ("sizes", "3, 112,112", (3, 112, 112)),
        ("sizes", "(100000,)", (100000,)),
        ("sizes", "[3, 112, 112]", (3, 112, 112)),
        ("sizes", "", ()),
        ("names", "a.tfrecord,b c", ("a.tfrecord", "b c")),
    ],
)
def test_texts_are_read(name, text, value):
    read = OPTIONS[name].parse(text)
    assert read == value
    assert type(read) is type(value)
    assert OPTIONS[name].parse(OPTIONS[name].format(value)) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("whole", text) for text in ("0", "10", "3.0", "three", "None", "")),
        *(("real", text) for text in ("1", "nan", "inf")),
        ("switch", "maybe"),
        ("kind", "gren"),
        ("sizes", "1,x"),
        ("sizes", "1,,2"),
        ("names", "a,,b"),
    ],
)
def test_refused_texts_say_what_was_expected(name, text):
    with pytest.raises(ValueError, match=f"{name} must be .*Received: {name}="):
        OPTIONS[name].parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("whole", value) for value in (2.0, "2", True)),
        *(("real", value) for value in ("x", float("nan"))),
        *(("switch", value) for value in (2, "true")),
        *(("word", value) for value in (None, "two\nlines")),
        *(("sizes", value) for value in (3, "3")),
        # Checks of such a text took minutes.
        ("word", "a" * 100_000),
        *(("names", value) for value in (b"lfw", "lfw,,agedb", ("a,b",), ("",))),
    ],
)
def test_wrong_types_are_refused(name, value):
    with pytest.raises(ValueError, match="Received"):
        Sample(**{name: value})


def test_values_take_the_type_of_the_option():
    sample = Sample(whole=np.int64(4), real=np.float32(0.25), sizes=[np.int32(5)])
    assert (sample.whole, sample.real, sample.sizes) == (4, 0.25, (5,))
    assert [type(sample.whole), type(sample.real)] == [int, float]
    assert type(Sample(limit=2).limit) is float


@pytest.mark.parametrize(
    ("text", "names"),
    [("lfw", ("lfw",)), ("lfw, cfp_fp,", ("lfw", "cfp_fp")), ("", ())],
)
def test_several_names_may_be_one_text_in_python_too(text, names):
    assert Sample(names=text).names == names
