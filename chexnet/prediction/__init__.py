"""A trained network on a user's films: files in, probabilities and heat maps out."""
