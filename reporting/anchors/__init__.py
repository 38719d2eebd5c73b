"""Numbers that others have published, with their sources, and which of our runs they can stand beside."""
