"""Claims of the prediction."""
