"""What became of a job, from what was seen of it; nothing here asks anybody."""
