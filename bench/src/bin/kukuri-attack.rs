//! Attacks a kukuri node. `cargo xtask attack` is the way to run it.

fn main() -> anyhow::Result<()> {
    kukuri_bench::attack::run(std::env::args_os())
}
