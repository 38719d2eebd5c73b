"""Kubernetes: jobs as any kind of object that makes pods. scheduler.py is the way in; importing this costs nothing."""
