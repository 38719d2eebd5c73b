"""What runs inside the job: ships alone, as one archive; Python 3.8 and torch 2.0 or newer."""
