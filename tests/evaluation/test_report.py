"""The table that a run ends with."""

from plsc_tf.evaluation.report import format_table


def test_values_stand_in_one_column():
    rows = [("loss", 1.2345678), ("steps", 1200), ("checkpoint", "runs/a")]
    assert format_table(rows) == (
        "loss        1.2346\n"
        "steps       1200\n"
        "checkpoint  runs/a"
    )  # fmt: skip


def test_lines_of_a_long_value_stay_in_their_column():
    assert format_table([("next", "one\ntwo")]) == "next  one\n      two"


def test_no_rows_make_no_text():
    assert format_table([]) == ""
