"""The API server: which one, what it serves, asked and watched."""
