"""The plain-text table that a run ends with."""


def format_table(rows):
    """Aligns names and values in two columns.

    Args:
        rows: (name, value) pairs, in the order of the lines. Floats are shown with
            five significant digits, everything else as `str` shows it; the lines of
            a longer value stay in its column.

    Returns:
        One string without a newline at its end; empty when there are no rows.
    """
    rows = [(str(name), _text(value)) for name, value in rows]
    width = max((len(name) for name, _ in rows), default=0)
    indent = "\n" + " " * (width + 2)
    return "\n".join(
        f"{name:<{width}}  {indent.join(value.splitlines())}".rstrip()
        for name, value in rows
    )


def _text(value):
    return f"{value:.5g}" if isinstance(value, float) else str(value)
