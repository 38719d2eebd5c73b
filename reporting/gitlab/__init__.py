"""What is asked of a GitLab server through its REST API: comments and merge requests."""
