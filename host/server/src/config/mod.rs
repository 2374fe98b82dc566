//! Configuration: what the file says, and what the program uses.
