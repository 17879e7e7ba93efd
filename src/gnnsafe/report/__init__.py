"""Reports: results of a study, for the terminal and as a page."""
