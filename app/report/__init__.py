"""Reports that travel: one file for a mail or a meeting, with the same numbers as the pages."""
