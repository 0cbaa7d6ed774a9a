"""Figures as benchmarks print them."""


def rounded(value):
    """Floats with six digits, throughout lists and dicts."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
