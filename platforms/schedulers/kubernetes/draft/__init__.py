"""What a cluster says of itself becomes the lines of a platform's file."""
