"""Objects of a cluster, read as data: their fields, pod templates, our labels, what pods were, what fits where."""
