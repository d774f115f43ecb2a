"""Running a dynamics: `solve`, and what comes back."""
