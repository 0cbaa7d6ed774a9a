"""The table that a run ends with."""

from plsc_tf.evaluation.report import format_table


def test_values_stand_in_one_column():
    rows = [("loss", 1.2345678), ("steps", 1200), ("checkpoint", "runs/a")]
    assert format_table(rows) == (
        "loss        1.2346\n"
        "steps       1200\n"
        "checkpoint  runs/a"
    )  # fmt: skip
    assert format_table([("next", "one\ntwo")]) == "next  one\n      two"
    assert format_table([]) == ""
