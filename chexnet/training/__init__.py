"""The loop and the step of a training, what crosses between ranks, and how it survives."""
