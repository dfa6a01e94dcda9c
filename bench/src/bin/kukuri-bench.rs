//! Measures a kukuri node, and other relays beside it. `cargo xtask bench` is the way to run it.

fn main() -> anyhow::Result<()> {
    kukuri_bench::run(std::env::args_os())
}
