"""The mathematics of capacity on demand: pure functions of data and time."""
