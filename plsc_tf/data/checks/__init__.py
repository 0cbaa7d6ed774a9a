"""The data doctor: what is wrong with a data set, before a training finds out."""
