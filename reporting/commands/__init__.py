"""`python -m reporting COMMAND`: a module for each command."""
