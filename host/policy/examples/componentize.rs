//! `componentize CORE.wasm OUT.wasm`: makes a component of what `cargo build` wrote.
//!
//! The server does that itself when it loads a policy; this is for files that are kept, such as the prebuilt ones.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [core, out] = &arguments[..] else {
        eprintln!("usage: componentize CORE.wasm OUT.wasm");
        return ExitCode::from(64);
    };
    match run(core, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn run(core: &str, out: &str) -> Result<(), String> {
    let module = std::fs::read(core).map_err(|error| format!("can't read {core}: {error}"))?;
    let component = pointsman_policy::componentize(&module).map_err(|error| format!("{core}: {error}"))?;
    std::fs::write(out, component).map_err(|error| format!("can't write {out}: {error}"))
}
