"""The API server: HTTP requests in, answers and watch streams out."""
