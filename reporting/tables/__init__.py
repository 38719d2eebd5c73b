"""Tables of runs: of a session, and of what the history holds; for a terminal, Markdown, and other programs."""
