"""What the API server adds to a new object, and what it refuses: defaults, validation, quotas, security levels."""
