"""The programme that shows on one GPU if plsc_tf is correct and fast there.

`__main__` runs it, `steps` lists its steps and sizes, `child` measures in processes of
their own, and the other modules hold the measurements.
"""
