"""Figures as people read them: names, values with their intervals, and a table."""

import dataclasses

# A rate that fewer errors than these would make up is not measured.
MIN_ERRORS = 10
# {name: (in a table on a terminal, on a page)}
_NAMES = {
    "accuracy": ("accuracy", "accuracy, mean of ten folds ± their deviation"),
    "best_threshold": ("threshold", "most accurate threshold, squared distance"),
    "eer": ("EER", "equal error rate"),
    "auc": ("AUC", "area under the ROC curve"),
    "xnorm": ("XNorm", "XNorm, mean length of the embeddings"),
    "val_at_far": (
        "val@FAR=0.001",
        "val@FAR=0.001, mean of ten folds ± their deviation",
    ),
}


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that a data set says about a model.

    Attributes:
        value: the number; None where the data cannot support it.
        low: lower end of its confidence interval; None without one.
        high: upper end.
        note: why there is no value, or no interval; or a remark on it.
        std: standard deviation over folds, if there are any.
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
        """The cosine of a squared distance of normalized embeddings."""
        squared = (self.value, self.high, self.low)
        value, low, high = (None if x is None else 1 - x / 2 for x in squared)
        return dataclasses.replace(self, value=value, low=low, high=high, std=None)

    def as_dict(self) -> dict:
        """Plain values, for JSON."""
        plain = {"value": self.value, "low": self.low, "high": self.high}
        if self.std is not None:
            plain["std"] = self.std
        return plain | ({"note": self.note} if self.note else {})


def not_supported(what: str, count: float) -> Figure:
    """The `Figure` of a rate that too few errors stand behind.

    Args:
        what: the errors, in the plural.
        count: their number, on average or in fact.
    """
    return Figure(None, note=f"{count:.3g} {what} behind it, {MIN_ERRORS} are needed")


def short_name(name: str) -> str:
    """A figure's name on a terminal: "tar@far=1e-03" is "TAR@FAR=0.001"."""
    if name in _NAMES:
        return _NAMES[name][0]
    kind, _, rate = name.partition("=")
    return f"{kind.upper()}={float(rate):g}" if rate else name.replace("_", "-")


def long_name(name: str) -> str:
    """A figure's name on a page."""
    if name in _NAMES:
        return _NAMES[name][1]
    kind, _, k = name.partition("_")
    long = {"rank": f"rank-{k} identification rate", "top": f"top-{k} accuracy"}
    return long.get(kind, short_name(name))


def format_table(rows) -> str:
    """Aligns names and values in two columns.

    Args:
        rows: (name, value) pairs, in the order of the lines. Floats are shown with
            five significant digits, everything else as `str` shows it; the lines of
            a longer value stay in its column.

    Returns:
        One string without a newline at its end; empty if there are no rows.
    """
    rows = [
        (str(name), f"{value:.5g}" if isinstance(value, float) else str(value))
        for name, value in rows
    ]
    width = max((len(name) for name, _ in rows), default=0)
    indent = "\n" + " " * (width + 2)
    return "\n".join(
        f"{name:<{width}}  {indent.join(value.splitlines())}".rstrip()
        for name, value in rows
    )
