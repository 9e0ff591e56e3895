"""DiLoCo learners: what the islands' training progress looks like, by inner step."""
