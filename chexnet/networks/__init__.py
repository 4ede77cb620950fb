"""The networks below the head, their weights, and a trained one out of its run folder."""
