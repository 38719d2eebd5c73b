"""Objects as the API server stores them, and the language that they are written in: kinds, selectors, quantities."""
