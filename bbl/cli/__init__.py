"""The command line: options, files, messages and sessions."""
