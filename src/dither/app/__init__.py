"""The command line: pages, plots, the demo. Nothing below imports it."""
