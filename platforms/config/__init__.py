"""Platform files and site.yaml: their keys, read with line numbers, every mistake reported at once."""
