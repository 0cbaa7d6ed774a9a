"""One figure of an evaluation: its value, its confidence interval, or why it has none."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that a data set says about a model.

    Attributes:
        value: the number; None where the data cannot support it.
        low: lower end of its confidence interval; None without one.
        high: upper end.
        note: why there is no value, or no interval; or what to know about it.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""

    def __str__(self):
        if self.value is None:
            return f"n/a ({self.note})" if self.note else "n/a"
        text = f"{self.value:.5f}"
        if self.low is not None:
            text += f" [{self.low:.5f}, {self.high:.5f}]"
        return text

    def as_dict(self):
        """Plain values, for JSON."""
        return {key: value for key, value in vars(self).items() if value != ""}


def not_supported(what, count, fewest):
    """The `Figure` of something that too few observations stand behind.

    Args:
        what: of which there are too few, in the plural.
        count: how many there are, on average or in fact.
        fewest: how many it takes.
    """
    return Figure(None, note=f"{count:.3g} {what} behind it, {fewest} are needed")
