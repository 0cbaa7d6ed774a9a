"""Calibration: what a cosine says about whether two images show the same person.

It maps a cosine to its log-likelihood ratio (LLR), the natural logarithm of
P(cosine | same person) / P(cosine | different people). Brümmer and du Preez,
"Application-independent evaluation of speaker detection", Computer Speech and Language
20 (2006), define the methods and the cost of LLRs, Cllr.
"""

import dataclasses

import numpy as np

from plsc_tf.evaluation.bootstrap import too_few
from plsc_tf.evaluation.verification import PairScores, People
from plsc_tf.requirements import require, require_package

# Parts of the identities, each of which is left out once; and most numbers of a curve,
# with which a model card is not too large for the server.
_PARTS, _MOST = 10, 1 << 17


@dataclasses.dataclass(frozen=True)
class Calibration:
    """LLRs of some cosines; they are interpolated between these, and constant beyond.

    Attributes:
        method: "logistic" or "isotonic".
        prior: probability that two images show the same person, before they are
            compared.
        cosines: the cosines, ascending.
        llrs: their LLRs.
        groups: see `of_groups`; {} without groups.

    Raises:
        ValueError, TypeError: a card has other values, which would make NaN of cosines.
    """

    method: str
    prior: float
    cosines: list[float]
    llrs: list[float]
    groups: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for curve in (self.cosines, self.llrs), *self.group_curves:
            pair = np.array(curve, np.float64)
            fits = pair.ndim == 2 and 0 < pair.size <= _MOST and (abs(pair) < 1e9).all()
            fits = fits and 0 < self.prior < 1 and (np.diff(pair[0]) >= 0).all()
            require(fits, "A calibration needs finite points, ascending, and a prior")

    @classmethod
    def read(cls, stored: dict) -> "Calibration":
        """Returns the calibration in a card; later versions may have more keys."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: stored[name] for name in names if name in stored})

    @property
    def group_curves(self) -> list:
        """The (cosines, LLRs) of the groups that have them, sorted by group."""
        groups = [one for _, one in sorted(self.groups.items())]
        return [(one["cosines"], one["llrs"]) for one in groups if "llrs" in one]

    def llr(self, cosines: np.ndarray) -> np.ndarray:
        """Returns the LLRs of cosines."""
        return np.interp(cosines, self.cosines, self.llrs)

    def probability(self, cosines: np.ndarray) -> np.ndarray:
        """Returns the probabilities of the same person, by Bayes' rule."""
        return 1 / (1 + np.exp(-self.llr(cosines)) * (1 - self.prior) / self.prior)


def fit(
    cosines: np.ndarray, same: np.ndarray, method: str, prior: float = 0.5
) -> Calibration:
    """Calibrates cosines.

    "logistic" is scikit-learn's `LogisticRegression` without a penalty, in which both
    kinds of pairs have the same weight: the line with the lowest Cllr. "isotonic" is
    its `IsotonicRegression`: the ascending curve with the lowest Cllr. Beyond the
    cosines that both kinds of pairs have, this is infinite; here, it is bounded as if
    there were one more pair of the missing kind.

    Args:
        cosines: float64 `[pairs]`.
        same: bool `[pairs]`, whether both images show one person.
        method: "logistic" or "isotonic".
        prior: see `Calibration`.

    Raises:
        ValueError: a kind of pairs is missing; or, for "logistic", one threshold
            separates them, so that the line would be infinitely steep.
        ImportError: scikit-learn is missing.
    """
    counts = np.bincount(same, minlength=2)
    rule = "Calibration needs pairs of the same person and of different people"
    require(counts.all(), rule, different=counts[0], same=counts[1])
    if method == "isotonic":
        curve = _isotonic(cosines, same)
        x, llrs = curve.X_thresholds_, _llrs(curve.y_thresholds_, same)
        llrs = np.clip(llrs, -np.log(counts[1] + 1), np.log(counts[0] + 1))
    else:
        rule = "Logistic calibration needs pairs that no threshold separates"
        advice = "Use calibrate=isotonic, or a set with more or harder pairs"
        require(cosines[same].min() < cosines[~same].max(), rule, advice)
        models = require_package("sklearn.linear_model", "calibration", "Calibration")
        options = {"class_weight": "balanced", "solver": "newton-cholesky"}
        line = models.LogisticRegression(C=np.inf, tol=1e-12, **options)
        x = np.array([-1.0, 1.0])
        llrs = line.fit(cosines[:, np.newaxis], same).decision_function(x[:, None])
    return Calibration(method, prior, x.tolist(), llrs.tolist())


def held_out(
    cosines: np.ndarray, same: np.ndarray, sides: np.ndarray, method: str
) -> np.ndarray:
    """Returns the pairs' LLRs by calibrations on pairs of other people.

    Args:
        cosines, same, method: see `fit`.
        sides: int `[2, pairs]`, the identities on both sides.
    """
    llrs, parts = np.empty(len(same)), sides % _PARTS
    for part in range(_PARTS):
        others, rows = (parts != part).all(axis=0), parts[0] == part
        llrs[rows] = fit(cosines[others], same[others], method).llr(cosines[rows])
    return llrs


def of_groups(scores: PairScores, people: People, llrs: np.ndarray, method: str):
    """Calibrates the pairs within each group by themselves.

    Args:
        scores: the scores of the pairs.
        people: their identities and groups.
        llrs: the result of `held_out` for all pairs.
        method: see `fit`.

    Returns:
        {group: {"cllr": with the calibration on all pairs, "own_cllr": with the group's
        own, both held out, and its "cosines" and "llrs"}, or {"note": why there is
        none}}, JSON-serializable.
    """
    cosines, found = 1 - scores.distances / 2, {}
    for name in sorted({*people.groups.ravel()} - {""}):
        rows = (people.groups == name).all(axis=0)
        of, kinds, sides = cosines[rows], scores.same[rows], people.sides[:, rows]
        note = too_few(len(np.unique(sides)))
        try:
            require(not note, note)
            own = fit(of, kinds, method)
            own_cllr = cllr(held_out(of, kinds, sides, method), kinds)
        except ValueError as error:
            found[name] = {"note": str(error)}
            continue
        costs = {"cllr": cllr(llrs[rows], kinds), "own_cllr": own_cllr}
        found[name] = costs | {"cosines": own.cosines, "llrs": own.llrs}
    return found


def cllr(llrs: np.ndarray, same: np.ndarray, weights: np.ndarray | None = None):
    """Returns the cost of LLRs, in bits: 0 is perfect, 1 is that of knowing nothing.

    It is NaN if a kind of pairs has no weight.

    Args:
        llrs: `[pairs]`.
        same: bool `[pairs]`.
        weights: `[pairs]`, how often each pair counts; None means once.
    """
    weights = np.ones(len(same)) if weights is None else weights
    costs = np.logaddexp(0, np.where(same, -llrs, llrs)) / np.log(2)
    with np.errstate(invalid="ignore"):
        means = [costs[k] @ weights[k] / weights[k].sum() for k in (same, ~same)]
    return float(np.mean(means))


def min_cllr(cosines: np.ndarray, same: np.ndarray) -> float:
    """Returns the lowest Cllr of all ascending curves, which knows the pairs."""
    return cllr(_llrs(_isotonic(cosines, same).predict(cosines), same), same)


def _isotonic(cosines, same):
    models = require_package("sklearn.isotonic", "calibration", "Calibration")
    return models.IsotonicRegression(out_of_bounds="clip").fit(cosines, same)


def _llrs(probabilities, same):
    """Returns the LLRs for probabilities at the pairs' own share of same persons."""
    with np.errstate(divide="ignore"):
        odds = np.log(probabilities) - np.log1p(-probabilities)
    return odds - np.log(same.sum() / (~same).sum())
