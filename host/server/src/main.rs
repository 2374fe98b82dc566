//! The program: hands its arguments to [`pointsman::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    pointsman::cli::main(std::env::args_os())
}
