"""The work_dir of a platform: what jobs left there, what prune may remove, and its removal."""
