"""Step G: the largest number of classes with full softmax that fits into a GPU."""

import dataclasses
import functools
import re
import time

from benchmarks import children, head, options, peer
from benchmarks.gpu import heads, smoke


def search(fits, guess, trials, most=None):
    """Finds about the largest number that fits, with few trials.

    Args:
        fits: function of a number that returns whether it fits; None if there is no
            time left to try it.
        guess: first number to try.
        trials: largest number of trials.
        most: number above which none is tried.

    Returns:
        (largest number that fitted, 0 if none did; smallest that did not, or None).
    """
    best, least, number = 0, None, min(guess, most or guess)
    for _ in range(trials):
        fitted = fits(number)
        if fitted is None:
            break
        if fitted:
            best = max(best, number)
        else:
            least = min(least or number, number)
        if best and best == most:
            break
        if least is None:
            number = min(int(1.25 * best), most or 2 * guess)
        elif not best:
            number = int(0.8 * least)
        else:
            number = (best + least) // 2
    return best, least


def ours(*, in_process, gpu_gb=None, **given):
    """The largest number of classes of `plsc_tf.ShardedHead`.

    Args:
        in_process: whether trials run in this process, which does not survive one that
            takes too much memory.
        gpu_gb: memory of the GPU; None: as nvidia-smi says.
        **given: arguments of `_found`.
    """

    run = head.measure
    if not in_process:
        run = functools.partial(children.call, head.measure)
    # Weights and momentum.
    guess = _guess(gpu_gb, 8 * given["emb_size"])
    return _found("plsc_tf", run, guess, **given)


def theirs(*, checkout, python, gpu_gb=None, **given):
    """The same of arcface_torch; its code is in `checkout`, run by `python`."""
    heads.require(checkout, python)
    # Weights, gradient, momentum, normalized weights and their gradient; the logits.
    guess = _guess(gpu_gb, 20 * (given["emb_size"] + given["global_batch"]))
    given |= {"peer": checkout, "peer_python": python}
    return _found("arcface_torch", peer.measure, guess, **given)


def _guess(gpu_gb, per_class):
    if gpu_gb is None:
        megabytes = re.match(r"\d+", smoke.nvidia_smi("memory.total"))
        gpu_gb = int(megabytes[0]) * 1.048576e-3 if megabytes else 1.0
    return int(0.9e9 * gpu_gb / per_class)


def _found(name, run, guess, *, trials, seconds, most=None, **case):
    """Searches for the largest number of classes.

    Args:
        name: name of the library.
        run: function of a `HeadCase` that raises an error if it does not fit.
        guess: number of classes to try first.
        trials: largest number of trials.
        seconds: time of the search; no trial begins that may not end within it.
        most: number of classes above which none is tried.
        **case: fields of `HeadCase`.
    """
    case = options.HeadCase(**case, num_classes=guess, products=False)
    tried, start = [], time.perf_counter()

    def fits(number):
        begin = time.perf_counter()
        longest = max([taken for *_, taken in tried], default=0)
        if begin - start + longest > seconds:
            return None
        try:
            run(dataclasses.replace(case, num_classes=number))
            fitted = True
        except RuntimeError:
            fitted = False
        tried.append([number, fitted, time.perf_counter() - begin])
        return fitted

    best, least = search(fits, guess, trials, most)
    if not best:
        raise RuntimeError(f"No number of classes fitted: {tried}. See the log.")
    return {
        "library": name,
        "emb_size": case.emb_size,
        "batch": case.global_batch,
        "most_classes": best,
        "too_many": least,
        "seconds_of_search": time.perf_counter() - start,
        "details": {"tried": tried},
    }
