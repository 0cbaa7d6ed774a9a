"""Options: their values, the command line, flag files, and where each has an effect."""
