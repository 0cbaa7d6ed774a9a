"""Replicas, and the values that are split over them."""
