"""The logs of all containers of one job, followed live and written to the job's folder. job_log.py is the way in."""
