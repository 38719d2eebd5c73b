"""The steps of doctor that look at a cluster."""
