"""One figure of an evaluation: its value and interval, or why it has none."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that a data set says about a model.

    Attributes:
        value: the number; None where the data cannot support it.
        low: lower end of its confidence interval; None without one.
        high: upper end.
        note: why there is no value, or no interval; or what to know about it.
        std: standard deviation over folds, where there are some.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    std: float | None = None

    def __str__(self):
        if self.value is None and self.note:
            return f"n/a ({self.note})"
        interval = f" [{self.low:.5f}, {self.high:.5f}]" if self.low is not None else ""
        return self.text() + interval

    def text(self, digits: int = 5) -> str:
        """The value and its deviation, without the interval."""
        if self.value is None:
            return "n/a"
        text = f"{self.value:.{digits}f}"
        return text if self.std is None else f"{text} ± {self.std:.{digits}f}"

    def as_cosine(self) -> "Figure":
        """The same of a squared distance of normalized embeddings, as cosine."""
        squared = (self.value, self.high, self.low)
        value, low, high = (None if x is None else 1 - x / 2 for x in squared)
        return dataclasses.replace(self, value=value, low=low, high=high, std=None)

    def as_dict(self) -> dict:
        """Plain values, for JSON."""
        plain = {"value": self.value, "low": self.low, "high": self.high}
        if self.std is not None:
            plain["std"] = self.std
        return plain | ({"note": self.note} if self.note else {})


def not_supported(what: str, count: float, fewest: int) -> Figure:
    """The `Figure` of something that too few observations stand behind.

    Args:
        what: of which there are too few, in the plural.
        count: how many there are, on average or in fact.
        fewest: how many it takes.
    """
    return Figure(None, note=f"{count:.3g} {what} behind it, {fewest} are needed")
