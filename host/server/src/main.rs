//! The program: hands its arguments to [`pointsman::cli`].

use std::process::ExitCode;

/// A call makes and drops hundreds of small objects on any thread; glibc's allocator takes a fifth of all processor
/// time for that, this one a third of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pointsman::cli::main(std::env::args_os())
}
