"""Kueue: admits jobs that name a queue when its quota has room for them."""
