"""The figures' names as people read them."""

_FIXED = {
    "accuracy": "accuracy",
    "best_threshold": "threshold",
    "eer": "EER",
    "auc": "AUC",
    "xnorm": "XNorm",
    "val_at_far": "val@FAR=0.001",
}
_LONG = {
    "accuracy": "accuracy, mean of ten folds ± their deviation",
    "best_threshold": "most accurate threshold, squared distance",
    "eer": "equal error rate",
    "auc": "area under the ROC curve",
    "xnorm": "XNorm, mean length of the embeddings",
    "val_at_far": "val@FAR=0.001, mean of ten folds ± their deviation",
}


def short(name):
    """For a table on a terminal: "tar@far=1e-03" is "TAR@FAR=0.001"."""
    if name in _FIXED:
        return _FIXED[name]
    what, _, rate = name.partition("=")
    if rate:
        return f"{what.upper()}={_rate(rate)}"
    what, _, k = name.partition("_")
    return f"{what}-{k}" if k else name


def long(name):
    """For a page."""
    if name in _LONG:
        return _LONG[name]
    kind, _, k = name.partition("_")
    if kind == "rank":
        return f"rank-{k} identification rate"
    if kind == "top":
        return f"top-{k} accuracy"
    return short(name)


def _rate(text):
    value = float(text)
    return f"{value:g}"
