"""From any layout to shards of equal size, globally shuffled, in bounded memory."""
