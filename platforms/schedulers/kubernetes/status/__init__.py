"""Judge what became of a job from what was seen of it. Nothing here asks the cluster; judge.py is the way in."""
