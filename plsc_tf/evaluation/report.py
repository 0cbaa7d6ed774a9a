"""Metrics formatted for people: names, values with intervals, and tables."""

import dataclasses

# A rate isn't measured if it would rest on fewer errors than this.
MIN_ERRORS = 10
_NAMES = {
    "best_threshold": "threshold",
    "eer": "EER",
    "auc": "AUC",
    "xnorm": "XNorm",
    "val_at_far": "val@FAR=0.001",
    "cllr": "Cllr",
    "min_cllr": "minimal Cllr",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a report.

    Attributes:
        samples: number of draws for the confidence intervals; 0 disables them.
        seed: random seed for the draws.
        far: false accept rate of the threshold.
        calibrate: method of `calibration.fit`; None for no calibration.
        prior: see `calibration.Calibration`.
    """

    samples: int = 0
    seed: int = 0
    far: float = 1e-3
    calibrate: str | None = None
    prior: float = 0.5


@dataclasses.dataclass(frozen=True)
class Figure:
    """A metric of a model on one data set.

    Attributes:
        value: the number; None if the data set is too small to measure it.
        low: lower end of the confidence interval; None if there is no interval.
        high: upper end of the confidence interval; None if there is no interval.
        note: why the value or the interval is missing, or another remark.
        std: standard deviation over folds; None if there are no folds.
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
        """Formats the value and its standard deviation, without the interval."""
        if self.value is None:
            return "n/a"
        text = f"{self.value:.{digits}f}"
        return text if self.std is None else f"{text} ± {self.std:.{digits}f}"

    def as_cosine(self) -> "Figure":
        """Converts a squared distance of normalized embeddings to a cosine."""
        squared = (self.value, self.high, self.low)
        value, low, high = (None if x is None else 1 - x / 2 for x in squared)
        return dataclasses.replace(self, value=value, low=low, high=high, std=None)

    def as_dict(self) -> dict:
        """Returns the figure as JSON-serializable values."""
        plain = {"value": self.value, "low": self.low, "high": self.high}
        if self.std is not None:
            plain["std"] = self.std
        return plain | ({"note": self.note} if self.note else {})


def not_supported(what: str, count: float) -> Figure:
    """Returns a `Figure` without a value, for a rate based on too few errors.

    Args:
        what: the kind of error, in the plural.
        count: expected or actual number of these errors.
    """
    return Figure(None, note=f"based on {count:.3g} {what}; needs {MIN_ERRORS}")


def short_name(name: str) -> str:
    """Returns a metric's name in tables: "TAR@FAR=0.001" for "tar@far=1e-03"."""
    if name in _NAMES:
        return _NAMES[name]
    kind, _, rate = name.partition("=")
    return f"{kind.upper()}={float(rate):g}" if rate else name.replace("_", "-")


def text(value) -> str:
    """Returns a result as text; floats get five significant digits."""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def format_table(rows) -> str:
    """Aligns names and values in two columns.

    Args:
        rows: (name, value) pairs, one per line, see `text`. The lines of a multiline
            value are aligned in the value column.

    Returns:
        The table without a trailing newline; empty if there are no rows.
    """
    rows = [(str(name), text(value)) for name, value in rows]
    width = max((len(name) for name, _ in rows), default=0)
    indent = "\n" + " " * (width + 2)
    texts = ((name, indent.join(value.splitlines())) for name, value in rows)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in texts)
