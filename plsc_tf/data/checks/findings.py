"""Findings: all of them counted, the first ones kept in words."""

from __future__ import annotations

import dataclasses

from plsc_tf.data.checks.kinds import ERROR, KINDS, Kind


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        where: the file, line or record.
        detail: what exactly; "" when the kind says it all.
    """

    where: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.detail}" if self.detail else self.where


class Findings:
    """Counts findings by kind.

    Args:
        kept: findings of each kind that are kept in words.
    """

    def __init__(self, kept: int = 1000):
        self.counts = dict.fromkeys(KINDS, 0)
        self._kept = kept
        self._first = {kind: [] for kind in KINDS}

    def add(self, kind: Kind, where="", detail: str = "", count: int = 1) -> None:
        """Counts a finding.

        Args:
            kind: of the finding.
            where: the place, or a function that returns it, called when it is kept.
            detail: what exactly.
            count: how many it stands for.
        """
        self.counts[kind] += count
        if len(self._first[kind]) < self._kept:
            place = where() if callable(where) else where
            self._first[kind].append(Finding(place, detail))

    def first(self, kind: Kind) -> list[Finding]:
        """The first findings of a kind."""
        return self._first[kind]

    def total(self, severity: str = ERROR) -> int:
        """Number of findings of a severity."""
        return sum(self.counts[kind] for kind in KINDS if kind.severity == severity)
