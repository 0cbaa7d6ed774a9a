"""1:N identification: finding a probe's identity in a gallery. NumPy only.

Scores are cosines, computed block by block as float32 matrix products. Only one rank
and two scores per probe are kept.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from plsc_tf.evaluation import roc, verification
from plsc_tf.requirements import require

RANKS = (1, 5, 10, 20, 50, 100)
FALSE_POSITIVE_RATES = (1e-1, 1e-2, 3e-3, 1e-3)
# Number of candidates that a search returns in NIST's evaluations.
LISTED = 50
# Size of a block of scores: 8 MB, which fits in the processor's cache.
PROBES, ENTRIES = 1024, 2048
# Scores this close count as ties: float32 products of equal rows can differ this much.
_TIE = 1e-6


@dataclasses.dataclass(frozen=True)
class Search:
    """The result of searching a gallery for each probe.

    Attributes:
        mated: `[probes]` bool, whether the probe's identity is in the gallery.
        ranks: `[probes]` int64, 1 + the number of other identities (or their entries)
            that score at least as high as the probe's own; 0 for probes without a
            mate.
        scores: `[probes]` float32, cosine between the probe and its own identity; NaN
            for probes without a mate.
        strongest: `[probes]` float32, highest cosine with another identity; -inf if
            the gallery has no other identity.
        num_identities: number of identities in the gallery.
    """

    mated: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray
    strongest: np.ndarray
    num_identities: int


def search(
    gallery: np.ndarray,
    gallery_ids: Sequence,
    probes: np.ndarray,
    probe_ids: Sequence,
    by_entry: bool = False,
) -> Search:
    """Ranks the identities of a gallery for each probe.

    An identity's score is the score of its best entry. Ties count against the model;
    otherwise, a model that maps everything to one point would be perfect.

    Args:
        gallery: `[entries, embedding_size]` float, not necessarily normalized; may be
            a memory map.
        gallery_ids: `[entries]`, identity of each entry; any values that NumPy can
            sort.
        probes: `[probes, embedding_size]` float, not necessarily normalized.
        probe_ids: `[probes]`, identity of each probe; an identity that is not in the
            gallery makes the search open-set.
        by_entry: whether ranks count entries of other identities, as in TinyFace's
            protocol, instead of identities.

    Returns:
        A `Search`.

    Raises:
        ValueError: the numbers of rows and identities differ or are 0, the embedding
            sizes differ, or an embedding contains NaN or infinity.
    """
    sides = {"gallery": (gallery, gallery_ids), "probes": (probes, probe_ids)}
    for name, (rows, ids) in sides.items():
        rule = f"{name} must have n rows and n identities, n at least 1"
        require(0 < len(rows) == len(ids), rule, rows=len(rows), identities=len(ids))
    names, numbers = np.unique(np.asarray(gallery_ids), return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(len(names) + 1))
    own = np.minimum(np.searchsorted(names, probe_ids), len(names) - 1)
    mated = names[own] == np.asarray(probe_ids)
    ranks, count = np.zeros(len(probes), np.int64), len(names)
    scores, best = (np.full(len(probes), x, np.float32) for x in (np.nan, -np.inf))
    result = Search(mated, ranks, scores, best, count)
    # An identity may have more entries than a block.
    step = max(1, PROBES * ENTRIES // max(ENTRIES, np.diff(starts).max()))
    for low in range(0, len(probes), step):
        rows = slice(low, min(low + step, len(probes)))
        block = _unit(probes[rows])
        identity = np.where(mated[rows], own[rows], -1)
        for number in np.unique(identity[mated[rows]]):
            entries = order[starts[number] : starts[number + 1]]
            mates = np.flatnonzero(identity == number)
            own_scores = _unit(gallery[entries]) @ block[mates].T
            result.scores[low + mates] = own_scores.max(axis=0)
        _rank(result, rows, block, identity, _blocks(gallery, order, starts), by_entry)
    result.ranks[mated] += 1
    return result


def rank_rates(result: Search, ranks: Sequence = RANKS, weights=None) -> dict:
    """Computes the share of mated probes whose mate is among the first k identities.

    Args:
        result: `Search`.
        ranks: values of k; except for 1, values not smaller than the number of
            identities are left out.
        weights: `[probes]`, how often each probe counts; None means once.

    Returns:
        {k: rate}; empty if no probe has a mate.
    """
    chosen = result.ranks[result.mated]
    counts = np.ones(len(chosen)) if weights is None else weights[result.mated]
    if not counts.sum():
        return {}
    below = [k for k in ranks if k == 1 or k < result.num_identities]
    return {k: float(np.average(chosen <= k, weights=counts)) for k in below}


def open_set(result: Search, rank: int = 1) -> roc.PairStatistics:
    """Returns the statistics of an open-set search, whose pairs are its probes.

    The curve's FAR is the false positive identification rate (FPIR): the share of
    probes without a mate for which any identity scores above the threshold. Its TAR is
    the true positive identification rate (TPIR): the share of mated probes whose mate
    is among the first `rank` identities and scores above the threshold. FNIR(N, R, T)
    of NIST's evaluations is 1 - TPIR at R = `rank` (Grother et al., "FRVT Part 2:
    Identification", NISTIR 8271; detection and identification rate of ISO/IEC 19795-1).
    """
    late = result.mated & (result.ranks > rank)
    scores = np.where(result.mated, result.scores, result.strongest)
    # All others are closer than 2, as cosines are within [-1, 1].
    distances = np.where(late, 2.0, -scores.astype(np.float64))
    pairs = verification.PairScores(distances, result.mated, None)
    return roc.PairStatistics(pairs, folds=0)


def tpir_at_fpir(result: Search, rates: Sequence = FALSE_POSITIVE_RATES) -> dict:
    """Computes true positive identification rates (TPIR) of an open-set search.

    Args:
        result: `Search`.
        rates: target FPIRs; a rate that allows fewer than ten false positives is left
            out.

    Returns:
        {rate: (TPIR, threshold as a cosine)}; only scores above the threshold count.
    """
    strangers = int(np.count_nonzero(~result.mated))
    rates = [rate for rate in rates if roc.supports(rate, strangers)]
    if not (rates and result.mated.any()):
        return {}
    points = open_set(result).curve()
    return {rate: (points.tar(rate).item(), -points.threshold(rate)) for rate in rates}


def misses(result: Search) -> dict:
    """Computes FNIR(N, R, T) at the ranks R = 1 to 50, for several thresholds T.

    Returns:
        {"rank": ranks, "no threshold": rates, "FPIR=0.003": rates, ...}.
    """
    misses, limits = {"rank": list(range(1, LISTED + 1))}, {"no threshold": -np.inf}
    for rate, (_, limit) in tpir_at_fpir(result).items():
        limits[f"FPIR={rate:g}"] = limit
    for name, limit in limits.items():
        found = result.ranks[result.mated & (result.scores > limit)]
        counts = np.cumsum(np.bincount(found, minlength=LISTED + 1)[1 : LISTED + 1])
        misses[name] = (1 - counts / np.count_nonzero(result.mated)).tolist()
    return misses


def _blocks(gallery, order, starts):
    """Yields (first identity, unit rows, offset of each identity in the rows).

    The gallery is sorted by identity, and a block never splits an identity.
    """
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + ENTRIES, "right")) - 1
        last = min(max(last, first + 1), len(starts) - 1)
        rows = order[starts[first] : starts[last]]
        yield first, _unit(gallery[rows]), starts[first:last] - starts[first]
        first = last


def _rank(result, rows, probes, identity, blocks, by_entry):
    """Counts other identities that score as high, and updates the highest score."""
    limit = (result.scores[rows] - np.float32(_TIE))[:, np.newaxis]
    counts, strongest = result.ranks[rows], result.strongest[rows]
    for first, unit, offsets in blocks:
        scores = probes @ unit.T
        numbers = first + np.arange(len(offsets))
        if by_entry:
            numbers = np.repeat(numbers, np.diff(np.append(offsets, len(unit))))
        elif len(offsets) < len(unit):
            scores = np.maximum.reduceat(scores, offsets, axis=1)
        scores[identity[:, np.newaxis] == numbers] = -np.inf
        # The limit is NaN for probes without a mate, so their comparisons are False.
        counts += np.count_nonzero(scores >= limit, axis=1)
        np.maximum(strongest, scores.max(axis=1), out=strongest)


def _unit(rows):
    """Normalizes rows to length 1 in float32; rows of zeros stay zero."""
    return verification.unit(np.asarray(rows, np.float32))
