"""What sites share in a branch of a git repository: the history, and unfinished runs. A work tree is never touched."""
