"""Every feature of the design has a test or a command that shows it."""

import pathlib

import pytest

from tests.conformance import features

ROWS = list(features.rows())


def test_no_row_is_missing():
    expected = [
        f"{group}{number + 1}"
        for group, count in features.GROUPS.items()
        for number in range(count)
    ]
    assert [name for name, _, _ in ROWS] == expected


@pytest.mark.parametrize(("name", "feature", "shown"), ROWS, ids=[r[0] for r in ROWS])
def test_something_shows_it(name, feature, shown):
    assert shown
    assert [features.fault(one) for one in shown] == [None] * len(shown)


REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_good[1]"/>
<testcase classname="tests.a.test_b" name="test_good[2]"/>
<testcase classname="tests.a.test_b" name="test_half[1]"/>
<testcase classname="tests.a.test_b" name="test_half[2]"><skipped/></testcase>
<testcase classname="tests.test_c" name="test_bad"><failure/></testcase>
<testcase classname="tests.test_d" name="test_none"><skipped/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("shown", "fault"),
    [
        ("a/test_b.py::test_good", None),
        ("a/test_b.py::test_half", "was skipped"),
        ("a/test_b.py", None),
        ("test_d.py", "was skipped"),
        ("test_c.py", "was failed"),
        ("a/test_b.py::test_none", "was not run"),
        ("python -m plsc_tf.train", None),
    ],
)
def test_a_test_that_did_not_pass_shows_nothing(tmp_path, shown, fault):
    path = pathlib.Path(tmp_path, "report.xml")
    path.write_text(REPORT)
    found = features.fault_of_run(shown, features.outcomes([path]))
    assert found == (fault and f"tests/{shown} {fault}")
