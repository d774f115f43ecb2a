"""The three dynamics: gradient descent, gradient flow and the equation of motion."""
