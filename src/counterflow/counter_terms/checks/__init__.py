"""Does the theory apply to a problem? Found by measurement, told in a report."""
