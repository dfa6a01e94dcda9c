//! Other relays, to be measured beside ours: installed under target/ from package registries, by their ordinary
//! installers. bench/peers/README.md describes each and its settings.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::{
    command::{cargo_command, exists, run, target_dir},
    tools,
};

/// Where their settings and our own programs among them are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/peers");

/// Their names.
pub(crate) const PEERS: [&str; 4] = ["nostr-rs-relay", "relay-builder", "khatru", "nostr-relay"];

/// Installs a peer, and prints it as the benchmark's `--relay` takes it.
#[allow(clippy::print_stdout, reason = "the benchmark reads it")]
pub(crate) fn install(name: &str) -> anyhow::Result<()> {
    let version = version(name)?;
    eprintln!("a peer: {name} {version}");
    let dir = target_dir()?.join("bench/peers");
    fs::create_dir_all(&dir)?;
    let program = match name {
        "nostr-rs-relay" => nostr_rs_relay(&dir, &version),
        "relay-builder" => relay_builder(&dir),
        "khatru" => khatru(&dir),
        _ => nostr_relay(&dir),
    }?;
    let start = Path::new(SOURCES).join("start.sh");
    let quoted =
        |path: &Path| anyhow::Ok(shlex::try_quote(path.to_str().context("a path is not UTF-8")?)?.into_owned());
    println!("{name}-{version}=sh {} {name} {} {{port}} {{dir}}", quoted(&start)?, quoted(&program)?);
    Ok(())
}

fn version(name: &str) -> anyhow::Result<String> {
    match name {
        "nostr-rs-relay" => Ok("0.8.12".to_owned()),
        "relay-builder" => pinned("relay-builder/Cargo.toml", "nostr-relay-builder = \"="),
        "khatru" => pinned("khatru/go.mod", "github.com/fiatjaf/khatru v"),
        _ => pinned("nostr-relay/requirements.txt", "nostr_relay=="),
    }
}

/// The version behind a text in one of our files.
fn pinned(file: &str, before: &str) -> anyhow::Result<String> {
    let file = Path::new(SOURCES).join(file);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let version = text.split_once(before).and_then(|(_, rest)| rest.split(['"', '\n']).next());
    Ok(version.with_context(|| format!("no version in {}", file.display()))?.to_owned())
}

/// Where cargo builds: an interrupted build is continued.
fn build_dir(dir: &Path) -> PathBuf {
    dir.join("build")
}

fn nostr_rs_relay(dir: &Path, version: &str) -> anyhow::Result<PathBuf> {
    tools::ensure("protoc", "protobuf-compiler")?;
    tools::ensure("pkg-config", "pkg-config")?;
    if !Command::new("pkg-config").args(["--exists", "openssl"]).status()?.success() {
        tools::install("libssl-dev")?;
    }
    // Cargo's own list of installed crates. Asking cargo would need the registry each time.
    let installed = fs::read_to_string(dir.join(".crates.toml")).unwrap_or_default();
    let program = dir.join("bin/nostr-rs-relay");
    if !installed.contains(&format!("\"nostr-rs-relay {version} ")) || !program.exists() {
        let mut install = cargo_command();
        // Not `--locked`: the `time` that it was published with does not compile any more.
        install.args(["install", "nostr-rs-relay", "--version", version, "--root"]).arg(dir);
        run(install.arg("--target-dir").arg(build_dir(dir)))?;
    }
    Ok(program)
}

fn relay_builder(dir: &Path) -> anyhow::Result<PathBuf> {
    let mut build = cargo_command();
    build.args(["build", "--release", "--manifest-path"]);
    build.arg(Path::new(SOURCES).join("relay-builder/Cargo.toml"));
    run(build.arg("--target-dir").arg(build_dir(dir)))?;
    Ok(build_dir(dir).join("release/relay-builder"))
}

fn khatru(dir: &Path) -> anyhow::Result<PathBuf> {
    if !exists("go") {
        bail!("it needs Go; please install it");
    }
    let program = dir.join("bin/khatru");
    let mut build = Command::new("go");
    // Without the tag, signatures are verified by Go code, which is several times slower.
    build.args(["build", "-tags", "libsecp256k1", "-o"]).arg(&program).arg(".");
    run(build.current_dir(Path::new(SOURCES).join("khatru")))?;
    Ok(program)
}

fn nostr_relay(dir: &Path) -> anyhow::Result<PathBuf> {
    tools::ensure("python3", "python3-venv")?;
    let wanted = Path::new(SOURCES).join("nostr-relay/requirements.txt");
    let requirements = fs::read(&wanted).with_context(|| wanted.display().to_string())?;
    let dir = dir.join("nostr-relay");
    // Written when all went well.
    let installed = dir.join("installed.txt");
    if !fs::read(&installed).is_ok_and(|installed| installed == requirements) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
        run(Command::new(dir.join("bin/pip")).args(["install", "--requirement"]).arg(&wanted))?;
        fs::write(installed, requirements)?;
    }
    Ok(dir.join("bin/nostr-relay"))
}

#[cfg(test)]
mod tests {
    use super::{PEERS, pinned, version};

    #[test]
    fn every_peer_has_a_pinned_version() {
        for peer in PEERS {
            let version = version(peer).unwrap();
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{peer}: {version}");
        }
        assert!(pinned("khatru/go.mod", "github.com/nobody/nothing v").is_err());
    }
}
