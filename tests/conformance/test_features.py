"""Every feature of the design has a test or a command that shows it."""

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
