"""The workers of TF_CONFIG, the variable that tells a process its place."""

import json

from plsc_tf.parallel import addresses

_REASONS = {
    "ps": "there are no parameter servers here: every worker holds its share of the "
    "classes. Remove the replicas of type ps",
    "evaluator": "the workers verify by themselves (val_targets). Remove the evaluator",
}


def read(text):
    """Returns (addresses, index of this process) from TF_CONFIG's text; None: no word.

    The chief comes before the workers, as in TensorFlow.

    Args:
        text: JSON, `{"cluster": {"worker": ["host:port", ...]}, "task": {"type":
            "worker", "index": 0}}`; empty where the variable is not set.

    Raises:
        ValueError: it is malformed, or has tasks that are no workers.
    """
    if not text.strip():
        return None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        _refuse(f"it is no JSON ({error})", text)
    if not isinstance(content, dict):
        _refuse("expected an object with cluster and task", text)
    if not content.get("cluster"):
        return None
    kind, index = _task(content, text)
    hosts = _hosts(content["cluster"], text)
    ordered = [(each, hosts.get(each, [])) for each in ("chief", "worker")]
    places = [(each, i) for each, members in ordered for i in range(len(members))]
    if (kind, index) not in places:
        _refuse(f"there is no {kind} {index} in the cluster", text)
    found = addresses.check([m for _, members in ordered for m in members], "TF_CONFIG")
    return found, places.index((kind, index))


def _hosts(cluster, text):
    """Returns the lists of "host:port" by kind of task, of chief and worker."""
    if not isinstance(cluster, dict):
        _refuse('expected "cluster": {"worker": ["host:port", ...]}', text)
    hosts = {kind: members for kind, members in cluster.items() if members}
    for kind, members in hosts.items():
        _require_worker(kind)
        texts = isinstance(members, list) and all(isinstance(m, str) for m in members)
        if not texts:
            _refuse(f'expected "{kind}": a list of "host:port"', text)
    return hosts


def _task(content, text):
    """Returns (kind, index) of this process; some systems write the index as text."""
    task = content.get("task")
    try:
        kind, index = task["type"], int(task["index"])
    except (TypeError, KeyError, ValueError):
        _refuse('expected "task": {"type": "worker", "index": 0}', text)
    _require_worker(kind)
    return kind, index


def _require_worker(kind):
    """Refuses tasks that are no workers, with the reason."""
    if kind not in ("chief", "worker"):
        reason = _REASONS.get(str(kind), "tasks are chief or worker")
        raise ValueError(f"TF_CONFIG has tasks of type {kind!r}, but {reason}.")


def _refuse(message, text):
    raise ValueError(f"TF_CONFIG: {message}. Received: {text}") from None
