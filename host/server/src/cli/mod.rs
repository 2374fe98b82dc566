//! The command line: one file per subcommand, which prints and parses only.
