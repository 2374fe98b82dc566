//! What small and big workers, and packing by measurement, are worth to a build of 2,513 actions: `cargo run --profile ci --bin mix`.
use anyhow::{Context as _, Result};
use clap::Parser;
use pointsman_tests::mix::{Setup, Shape, actions, compare, table};
use std::io::Write as _;

/// Build on workers that are all alike, learn from that, and build on small and big ones.
#[derive(Debug, Parser)]
struct Arguments {
    /// What makes the actions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Nodes of 16 cores with three workers each, before.
    #[arg(long, default_value_t = 8)]
    nodes: usize,
    /// Nodes with eight small workers each, after.
    #[arg(long, default_value_t = 2)]
    small_nodes: usize,
    /// Nodes with two big workers each beside them.
    #[arg(long, default_value_t = 6)]
    big_nodes: usize,
    /// Nodes with one worker of fourteen threads each, which share fourteen cores.
    #[arg(long, default_value_t = 8)]
    packed_nodes: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let actions = actions(arguments.seed);
    let alike = Shape { name: "equal", size_class: 1, cores: 4.5, memory_mib: 9 << 10, per_node: 3 };
    let small = Shape { name: "small", size_class: 1, cores: 1.5, memory_mib: 4 << 10, per_node: 8 };
    let big = Shape { name: "big", size_class: 4, cores: 6.0, memory_mib: 12 << 10, per_node: 2 };
    let thread = Shape { name: "thread", size_class: 1, cores: 1.0, memory_mib: 24 << 10, per_node: 14 };
    let first =
        Setup { name: "all alike", nodes: vec![(alike, arguments.nodes)], by_size: false, host_cores: None };
    let others = [
        Setup {
            name: "small and big",
            nodes: vec![(small, arguments.small_nodes), (big, arguments.big_nodes)],
            by_size: true,
            host_cores: None,
        },
        Setup {
            name: "packed by measurement",
            nodes: vec![(thread, arguments.packed_nodes)],
            by_size: false,
            host_cores: Some(14),
        },
    ];
    let outcomes = compare(&actions, &first, &others)?;
    write!(std::io::stdout(), "{}", table(&actions, &outcomes)).context("cannot print")
}
