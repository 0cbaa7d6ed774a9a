"""`--protocol=all_pairs`: counts, merges and reports all pairs of saved embeddings."""

import hashlib

import numpy as np

from plsc_tf.evaluation import all_pairs, groups, lists, roc
from plsc_tf.evaluation.all_pairs import DIFFERENT, SAME
from plsc_tf.evaluation.bootstrap import MIN_IDENTITIES
from plsc_tf.evaluation.report import Figure, not_supported
from plsc_tf.evaluation.set_report import SetReport
from plsc_tf.jobs.evaluate import protocols
from plsc_tf.requirements import require
from plsc_tf.storage import files, outputs

SHARED = "the threshold is among cosines that share a bin"
RATES = (*roc.FALSE_ACCEPT_RATES, 1e-7, 1e-8)


def run(scoring) -> tuple[list[SetReport], list[str]]:
    """Counts a shard of all pairs; reports on all pairs if every shard is counted.

    The counts are saved in faces.pairs if the embeddings are in faces.npy; in the
    folder of the new card if an evaluation is repeated.

    Args:
        scoring: the options `embeddings`, `identities`, `groups`, `shard` and
            `card_far`.

    Returns:
        (the reports on all pairs and on the pairs of each group; the shards that are
        not counted yet, without which there are no reports).

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is invalid, or the files do not match.
    """
    rule = "card_far must be at most 0.1 for all pairs, of which the others share a bin"
    require(scoring.card_far <= max(RATES), rule, card_far=scoring.card_far)
    rows, text = lists.read_rows(scoring.embeddings), files.read(scoring.identities)
    identities, people = lists.read_labels(text, scoring.identities, len(rows))
    found = np.full(len(identities), "", object)
    if scoring.groups:
        found = protocols.groups_of([f"{name}/" for name in identities], scoring.groups)
    names, group_of = np.unique(found, return_inverse=True)
    counter = all_pairs.PairCounter(rows, people, group_of)
    # A digest has a fixed length: a text could end as the groups of another one begin.
    whole = hashlib.sha256(text).digest() + group_of.tobytes()
    sha256 = hashlib.sha256(whole).hexdigest()
    checksum = files.checksum(scoring.embeddings, "sha256")["sha256"]
    folder = f"{scoring.embeddings.removesuffix('.npy')}.pairs"
    if scoring.reproduce:  # counts that came with a card would agree with it
        folder = files.join(scoring.card_dir, "pairs")
        outputs.require_absent(folder)
    outputs.require_closed(folder, allow_siblings=True)
    files.make_dirs(folder)
    (number, shards), total, missing = map(int, scoring.shard.split("/")), 0, []
    for part in range(1, shards + 1):
        # Counts of other embeddings, identities or groups have other names.
        path = f"{folder}/{sha256}-{checksum}-{all_pairs.BLOCK}-{part}-of-{shards}.npy"
        if part == number:
            counter.run(path, (part, shards))
        counts, left = counter.load(path, (part, shards))
        total, missing = total + counts, missing + [f"{part}/{shards}"] * bool(left)
    if missing:
        return [], missing
    images, case = np.bincount(people), (rows.shape[1], scoring.card_far, sha256)
    return _reports(total, names, images, group_of, case), []


def _reports(counts, names, images, group_of, case):
    """Returns the reports on all pairs and on the pairs of each large enough group."""
    overall = _report("all pairs", counts.sum(axis=0), images, *case)
    # Identities without a group are in a group without a name.
    groups_in = [
        (name, own, images[group_of == number])
        for number, (name, own) in enumerate(zip(names, counts, strict=False))
        if name
    ]
    if groups_in and (cosine := overall.threshold["cosine"]):
        overall.groups = _error_rates(groups_in, counts.sum(axis=0), cosine)
    return [overall] + [
        _report(f"all pairs of {name}", own, members, *case)
        for name, own, members in groups_in
        if len(members) >= MIN_IDENTITIES and members.max() > 1
    ]


def _error_rates(groups_in, total, cosine):
    """Returns the error rates of groups at the threshold for all."""
    rates, (among, of) = {"fnmr": {}, "fmr": {}}, all_pairs.errors(total, cosine)
    for name, own, members in groups_in:
        wrong, pairs = all_pairs.errors(own, cosine)
        several = np.count_nonzero(members > 1)
        kinds = ("fnmr", SAME, several), ("fmr", DIFFERENT, len(members))
        for error, kind, people in kinds:
            given = wrong[kind], pairs[kind], people, among[kind] / of[kind]
            rates[error][name] = groups.error_rate(*given)
    return {error: groups.summarize(rates[error]) for error in rates}


def _report(name, counts, images, size, far, sha256):
    """Returns the report on counts `[2, bins]` of people with some images each."""
    points, pairs = all_pairs.curve(counts), counts.sum(axis=1).tolist()
    figures = {f"tar@far={r:.0e}": _tar(points, counts, r, size) for r in RATES}
    totals = {"images": int(images.sum()), "identities": len(images)}
    totals |= {"pairs": sum(pairs), "same": pairs[SAME], "different": pairs[DIFFERENT]}
    report = SetReport(name, "all pairs", figures, totals, sha256=sha256)
    report.add_curve(points, far)
    if (cosine := report.threshold["cosine"]) and _is_shared(cosine):
        nothing = {"far": far, "squared_l2": None, "cosine": None}
        report.threshold = nothing | {"note": SHARED}
    return report


def _is_shared(cosine):
    """Returns whether a threshold is in the first bin, with all lower cosines."""
    return cosine * all_pairs.BINS <= 1


def _tar(points, counts, rate, size):
    """Returns the TAR at a FAR, with the bounds that float32's rounding leaves."""
    if not roc.supports(rate, points.num_different):
        return not_supported("false pairs", rate * points.num_different)
    cosine, shift = 1 - points.threshold(rate) / 2, all_pairs.rounding(size)
    if _is_shared(cosine):
        return Figure(None, note=SHARED)

    def rates(threshold):
        wrong, pairs = all_pairs.errors(counts, threshold)
        return wrong / pairs

    exact, strict, lax = map(rates, (cosine, cosine + shift, cosine - shift))
    tars = f"{1 - strict[SAME]:.5f} to {1 - lax[SAME]:.5f}"
    fars = f"{strict[DIFFERENT]:.4g} to {lax[DIFFERENT]:.4g}"
    note = f"cosine {cosine:.5f}, FAR {exact[DIFFERENT]:.4g}; with float32's rounding "
    note += f"TAR {tars}, FAR {fars}"
    return Figure(float(points.tar(rate)), note=note)
