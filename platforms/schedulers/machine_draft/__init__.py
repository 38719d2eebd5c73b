"""What a machine that commands reach says of itself becomes the lines of a platform's file: Slurm's, and one alone."""
