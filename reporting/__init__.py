"""What is made of the numbers. Never imports torch or pytest."""
