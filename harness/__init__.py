"""Where pytest ends: the only package that imports it."""
