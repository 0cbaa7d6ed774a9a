"""The memory that a training needs, computed before it starts."""
