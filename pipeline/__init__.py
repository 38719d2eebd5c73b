"""What a CI system runs around `pytest`: submit, fetch, measure, cancel, report. GitLab's templates call it."""
