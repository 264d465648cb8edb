"""The room of the command line: options, files, messages and what is done with them."""
