"""The position of a run, and the means of its epoch so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

# What a step's examples are counted in; see `Position.sums`.
COUNTS = EXAMPLES, WEIGHTS = "examples", "weights"


@dataclasses.dataclass
class Position:
    """The position of a run, which a resume needs besides the weights.

    Attributes:
        epoch: number of the running epoch, from 0.
        step: steps of it that are done.
        global_step: steps done since the run began.
        sums: of the epoch's examples so far, their number as "examples", of their
            weights as "weights" where there are weighted metrics, and figure by figure.
    """

    epoch: int = 0
    step: int = 0
    global_step: int = 0
    sums: dict = dataclasses.field(default_factory=dict)

    def go_to(self, other: Position) -> None:
        """Takes over another position."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(other, field.name))

    def add(
        self,
        figures: Mapping[str, float],
        counts: Mapping[str, float],
        weighted: Iterable[str] = (),
    ) -> None:
        """Counts a step's figures.

        Args:
            figures: means over the step's examples.
            counts: `{"examples": their number}`, and their "weights".
            weighted: names of the figures that are means by weight.
        """
        # A new dict: copies of this position keep theirs.
        sums = {**dict.fromkeys(counts, 0.0), **self.sums}
        for name, value in counts.items():
            sums[name] += value
        for name, value in figures.items():
            count = counts[WEIGHTS if name in weighted else EXAMPLES]
            sums[name] = sums.get(name, 0.0) + value * count
        self.sums = sums

    def means(self, weighted: Iterable[str] = ()) -> dict[str, float]:
        """The epoch's figures so far; `weighted` as of `add`."""
        totals = {name: max(self.sums.get(name, 0.0), 1e-12) for name in COUNTS}
        return {
            name: value / totals[WEIGHTS if name in weighted else EXAMPLES]
            for name, value in self.sums.items()
            if name not in totals
        }
