//! The program that callgrind runs. An example, because cargo builds those from what it has built for the tests.

use std::{env, path::Path};

use anyhow::{Context, bail};
use kukuri_counts::{OPERATIONS, fill};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => OPERATIONS.iter().for_each(|operation| say(operation.name)),
        ["fill", directory] => fill(Path::new(directory))?,
        ["run", name, directory] => {
            let operation = OPERATIONS.iter().find(|operation| operation.name == name);
            let operation = operation.with_context(|| format!("there is no operation {name}"))?;
            say(&(operation.run)(Path::new(directory))?.to_string());
        }
        _ => bail!("one of: list, fill DIRECTORY, run NAME DIRECTORY"),
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "it is read by xtask")]
fn say(line: &str) {
    println!("{line}");
}
