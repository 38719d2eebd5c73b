"""The nodes of a platform: which of them are slower than the others, and which are to be visited next."""
