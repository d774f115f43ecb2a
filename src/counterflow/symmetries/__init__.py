"""Symmetries of a loss: what they conserve, and what is left of it under gradient descent."""
