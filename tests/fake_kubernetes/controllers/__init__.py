"""Scheduler and controllers: threads that watch the store and write back what follows from it."""
