"""How wrong a flow is: measured, predicted and bounded (Section 4 of the paper)."""
