"""Where jobs run: the submitting side. Never imports torch or pytest."""
