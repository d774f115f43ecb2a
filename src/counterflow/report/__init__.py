"""Pictures and pages of what was computed."""
