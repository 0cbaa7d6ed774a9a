"""Findings: all of them counted, the first ones stored in words."""

from __future__ import annotations

import dataclasses

from plsc_tf.data.checks.kinds import ERROR, KINDS, Kind


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One problem.

    Attributes:
        where: the file, line or record.
        detail: "" if the kind says everything.
    """

    where: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.detail}" if self.detail else self.where


class Findings:
    """Counts findings by kind.

    Args:
        limit: findings of each kind that are stored in words.
    """

    def __init__(self, limit: int = 1000):
        self.counts = dict.fromkeys(KINDS, 0)
        self._limit = limit
        self._first = {kind: [] for kind in KINDS}

    def add(self, kind: Kind, where="", detail: str = "", count: int = 1) -> None:
        """Counts a finding.

        Args:
            kind: of the finding.
            where: the place, or a function that returns it, called if it is stored.
            detail: further words.
            count: the number of things it stands for.
        """
        self.counts[kind] += count
        if len(self._first[kind]) < self._limit:
            place = where() if callable(where) else where
            self._first[kind].append(Finding(place, detail))

    def first(self, kind: Kind) -> list[Finding]:
        """Returns the first findings of a kind."""
        return self._first[kind]

    def total(self, severity: str = ERROR) -> int:
        """Returns the number of findings of a severity."""
        return sum(self.counts[kind] for kind in KINDS if kind.severity == severity)

    def as_list(self) -> list[dict]:
        """Returns plain values, for JSON."""
        return [
            {
                "kind": kind.name,
                "severity": kind.severity,
                "text": kind.text,
                "count": self.counts[kind],
                "first": [dataclasses.asdict(one) for one in self._first[kind]],
            }
            for kind in KINDS
            if self.counts[kind]
        ]
