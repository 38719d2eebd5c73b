"""`python -m platforms COMMAND`: a module or package for each command."""
