"""From `Settings` to the objects of a run: data, model, optimizer, reporting."""
