//! The Wasm engine: the same decision for the same facts, and an end to every call.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::{Config, Engine, WasmBacktraceDetails};

/// Ticks of the epoch clock in a deadline: so coarse is the net.
const TICKS_PER_DEADLINE: u32 = 10;

/// An engine and the thread that moves its epoch on.
#[derive(Debug)]
pub(crate) struct Ticking {
    pub(crate) engine: Engine,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticking {
    pub(crate) fn new(deadline: Duration) -> Result<Self, String> {
        let engine = Engine::new(&config()).map_err(|error| format!("{error:#}"))?;
        let (stop, stopped) = channel();
        let weak = engine.weak();
        let tick = (deadline / TICKS_PER_DEADLINE).max(Duration::from_millis(1));
        let thread = std::thread::Builder::new()
            .name("policy-epoch".into())
            .spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(tick) {
                    match weak.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })
            .map_err(|error| format!("can't start the thread that stops endless policies: {error}"))?;
        Ok(Self { engine, stop: Some(stop), thread: Some(thread) })
    }

    /// What to give `Store::set_epoch_deadline`: one tick more than fits, as the first one may come at once.
    pub(crate) fn ticks() -> u64 {
        u64::from(TICKS_PER_DEADLINE) + 1
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that could panic, and there is nobody to tell.
            let _ = thread.join();
        }
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .consume_fuel(true)
        .epoch_interruption(true)
        // A policy's stack lies on the stack of the thread that calls it, which may be a reactor's with 2 MiB.
        .max_wasm_stack(512 << 10)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    // Instances live long, one per core and generation, so allocating them on demand (some 10 us more for each) costs
    // nothing, while a pool would bound how many generations can exist side by side.
    config
}
