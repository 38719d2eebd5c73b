"""The real on-disk formats: readers, writers of synthetic data, and the order in which samples are read."""
