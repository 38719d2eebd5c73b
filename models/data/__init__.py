"""Data sets in their real on-disk formats: readers, writers of synthetic data, loaders, and the order of samples."""
