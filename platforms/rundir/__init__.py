"""The folder of a run: each job's folder, the journals of its sessions, the archive of what is old."""
