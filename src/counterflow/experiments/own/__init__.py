"""What is asked about one's own problem, one question per file."""
