"""Figures as benchmarks print them."""


def rounded(value, digits=6):
    """Rounds all floats in nested lists and dicts."""
    if isinstance(value, dict):
        return {name: rounded(item, digits) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
