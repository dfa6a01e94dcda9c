//! `config`: the effective configuration, with the layer of each value.

use crate::{
    config::{self, Flags, print},
    output, wiring,
};

pub(crate) async fn run(flags: &Flags) -> anyhow::Result<()> {
    let loaded = config::load(flags, &Default::default())?;
    // Keys of the console's layer are in the control database. The other layers can be shown without it.
    let console = wiring::control::configuration(&loaded.settings).await.unwrap_or_else(|error| {
        eprintln!("kukuri-node: values set by commands are not shown: {}", output::one_line(&error));
        Default::default()
    });
    output::print(&print::effective(&config::load(flags, &console)?))
}
