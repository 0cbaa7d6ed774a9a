"""Converts any layout to globally shuffled shards of equal size, in bounded memory."""
