"""This package runs inside the job. It travels alone, as one archive, and needs Python 3.8 and torch 2.0 or newer."""
