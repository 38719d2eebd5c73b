"""What people have decided about numbers: accepted levels, acknowledged regressions, notes and pauses."""
