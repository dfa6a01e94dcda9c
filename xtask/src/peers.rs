//! Other relays, to be measured beside ours: installed under target/ from package registries, by their ordinary
//! installers. bench/peers/README.md describes each and its settings.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::{
    command::{cargo_command, exists, run},
    tools,
};

/// Where their settings and our own programs among them are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/peers");
/// Parts of the benchmark without other relays.
const OURS_ALONE: [&str; 2] = ["store", "search"];

struct Peer {
    name: &'static str,
    /// Which version is wanted.
    version: fn() -> anyhow::Result<String>,
    /// Makes the program, if it is not there, and tells where it is.
    install: fn(&Place, &str) -> anyhow::Result<PathBuf>,
}

const PEERS: [Peer; 4] = [
    Peer { name: "nostr-rs-relay", version: || Ok("0.8.12".to_owned()), install: Place::nostr_rs_relay },
    Peer {
        name: "relay-builder",
        version: || pinned("relay-builder/Cargo.lock", "name = \"nostr-relay-builder\"\nversion = \""),
        install: Place::relay_builder,
    },
    Peer { name: "khatru", version: || pinned("khatru/go.mod", "github.com/fiatjaf/khatru v"), install: Place::khatru },
    Peer {
        name: "nostr-relay",
        version: || pinned("nostr-relay/requirements.txt", "nostr_relay=="),
        install: Place::nostr_relay,
    },
];

/// The benchmark's arguments, and after them `--relay …` for each peer that is wanted and can be had.
///
/// All are, unless `--no-peers`, `--only name,…` or the benchmark's own arguments say otherwise.
pub(crate) fn beside(arguments: &[String]) -> anyhow::Result<Vec<String>> {
    let (mut arguments, wanted) = choose(arguments)?;
    if wanted.is_empty() {
        return Ok(arguments);
    }
    let place = Place::make()?;
    for peer in wanted {
        match peer.relay(&place) {
            Ok(relay) => arguments.extend(["--relay".to_owned(), relay]),
            Err(error) => eprintln!("{} is left out: {error:#}", peer.name),
        }
    }
    Ok(arguments)
}

/// Which peers are wanted, and the arguments without those that are about that.
fn choose(arguments: &[String]) -> anyhow::Result<(Vec<String>, Vec<&'static Peer>)> {
    let mut rest = Vec::new();
    let (mut none, mut only) = (false, None::<Vec<String>>);
    // Two builds of our node are compared without other relays.
    let mut has_node = false;
    let mut parts = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (flag, value) = word.split_once('=').map_or((word.as_str(), None), |(flag, value)| (flag, Some(value)));
        let list = |value: &str| value.split(',').map(str::to_owned).collect::<Vec<_>>();
        match (flag, value) {
            ("--no-peers", None) => {
                none = true;
                continue;
            }
            ("--only", value) => {
                let value = value.or_else(|| words.next().map(String::as_str)).context("--only needs names")?;
                only.get_or_insert_default().extend(list(value));
                continue;
            }
            ("--part", Some(value)) => parts.extend(list(value)),
            ("--part", None) => parts.extend(words.clone().next().map(|value| list(value)).unwrap_or_default()),
            ("--relay" | "--help" | "-h", _) => none = true,
            ("--node", _) => {
                none |= has_node;
                has_node = true;
            }
            _ => {}
        }
        rest.push(word.clone());
    }
    // A command of its own, not the comparison.
    none |= arguments.first().is_some_and(|word| !word.starts_with('-'));
    none |= !parts.is_empty() && parts.iter().all(|part| OURS_ALONE.contains(&part.as_str()));
    let known = |name: &String| PEERS.iter().any(|peer| peer.name == name);
    if let Some(name) = only.iter().flatten().find(|name| !known(name)) {
        bail!("--only {name}: there are {}", PEERS.map(|peer| peer.name).join(", "));
    }
    let is_wanted = |peer: &&Peer| !none && only.as_ref().is_none_or(|only| only.iter().any(|name| name == peer.name));
    Ok((rest, PEERS.iter().filter(is_wanted).collect()))
}

impl Peer {
    /// Installs it, and tells how it is started.
    fn relay(&self, place: &Place) -> anyhow::Result<String> {
        let version = (self.version)()?;
        eprintln!("a peer: {} {version}", self.name);
        let program = (self.install)(place, &version)?;
        let start = Path::new(SOURCES).join("start.sh");
        Ok(format!(
            "{}-{version}=sh {} {} {} {{port}} {{dir}}",
            self.name,
            quoted(&start)?,
            self.name,
            quoted(&program)?
        ))
    }
}

/// A path as one word of a shell's command.
fn quoted(path: &Path) -> anyhow::Result<String> {
    let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(format!("'{}'", path.replace('\'', r"'\''")))
}

/// The version behind a text in one of our files.
fn pinned(file: &str, before: &str) -> anyhow::Result<String> {
    let file = Path::new(SOURCES).join(file);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let version = text.split_once(before).and_then(|(_, rest)| rest.split(['"', '\n']).next());
    Ok(version.with_context(|| format!("no version in {}", file.display()))?.to_owned())
}

/// Where peers are installed.
struct Place(PathBuf);

impl Place {
    fn make() -> anyhow::Result<Self> {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let place = env::current_dir()?.join(target).join("bench/peers");
        fs::create_dir_all(&place)?;
        Ok(Self(place))
    }

    fn program(&self, name: &str) -> PathBuf {
        self.0.join("bin").join(name)
    }

    /// Where cargo builds: an interrupted build is continued.
    fn build(&self) -> PathBuf {
        self.0.join("build")
    }

    fn nostr_rs_relay(&self, version: &str) -> anyhow::Result<PathBuf> {
        tools::ensure("protoc", "protobuf-compiler")?;
        tools::ensure("pkg-config", "pkg-config")?;
        if !Command::new("pkg-config").args(["--exists", "openssl"]).status()?.success() {
            tools::install("libssl-dev")?;
        }
        // Cargo's own list of installed crates. Asking cargo would need the registry each time.
        let installed = fs::read_to_string(self.0.join(".crates.toml")).unwrap_or_default();
        let program = self.program("nostr-rs-relay");
        if !installed.contains(&format!("\"nostr-rs-relay {version} ")) || !program.exists() {
            let mut install = cargo_command();
            // Not `--locked`: the `time` that it was published with does not compile any more.
            install.args(["install", "nostr-rs-relay", "--version", version, "--root"]).arg(&self.0);
            run(install.arg("--target-dir").arg(self.build()))?;
        }
        Ok(program)
    }

    fn relay_builder(&self, _: &str) -> anyhow::Result<PathBuf> {
        let mut build = cargo_command();
        build.args(["build", "--release", "--locked", "--manifest-path"]);
        build.arg(Path::new(SOURCES).join("relay-builder/Cargo.toml"));
        run(build.arg("--target-dir").arg(self.build()))?;
        Ok(self.build().join("release/relay-builder"))
    }

    fn khatru(&self, _: &str) -> anyhow::Result<PathBuf> {
        if !exists("go") {
            bail!("it needs Go; please install it");
        }
        let program = self.program("khatru");
        let mut build = Command::new("go");
        // Without the tag, signatures are verified by Go code, which is several times slower.
        build.args(["build", "-tags", "libsecp256k1", "-o"]).arg(&program).arg(".");
        run(build.current_dir(Path::new(SOURCES).join("khatru")))?;
        Ok(program)
    }

    fn nostr_relay(&self, _: &str) -> anyhow::Result<PathBuf> {
        tools::ensure("python3", "python3-venv")?;
        let wanted = Path::new(SOURCES).join("nostr-relay/requirements.txt");
        let requirements = fs::read(&wanted).with_context(|| wanted.display().to_string())?;
        let place = self.0.join("nostr-relay");
        // Written when all went well.
        let installed = place.join("installed.txt");
        if !fs::read(&installed).is_ok_and(|installed| installed == requirements) {
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
            run(Command::new(place.join("bin/pip")).args(["install", "--requirement"]).arg(&wanted))?;
            fs::write(installed, requirements)?;
        }
        Ok(place.join("bin/nostr-relay"))
    }
}

#[cfg(test)]
mod tests {
    use super::{PEERS, choose, pinned, quoted};

    fn chosen(arguments: &str) -> (String, Vec<&'static str>) {
        let words: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
        let (rest, peers) = choose(&words).unwrap();
        (rest.join(" "), peers.iter().map(|peer| peer.name).collect())
    }

    #[test]
    fn peers_take_part_unless_arguments_exclude_them() {
        let all: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
        let one = vec!["khatru"];
        let none = Vec::new();
        for (arguments, passed_on, expected) in [
            ("", "", &all),
            ("--part ingest,store --seed=2", "--part ingest,store --seed=2", &all),
            ("--part=store --part live", "--part=store --part live", &all),
            ("--part store,search", "--part store,search", &none),
            ("--no-peers --seed 2", "--seed 2", &none),
            ("--only khatru --seed 2", "--seed 2", &one),
            ("--seed 2 --only=khatru", "--seed 2", &one),
            ("--relay x=y", "--relay x=y", &none),
            ("--help", "--help", &none),
            ("--node a", "--node a", &all),
            ("--node old=a --node new=b", "--node old=a --node new=b", &none),
            ("store --sizes 10k", "store --sizes 10k", &none),
        ] {
            assert_eq!(chosen(arguments), (passed_on.to_owned(), expected.clone()), "{arguments}");
        }
    }

    #[test]
    fn unknown_peer_is_an_error_that_lists_the_known_ones() {
        let error = choose(&["--only".to_owned(), "khatru,strfry".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("strfry") && error.contains("nostr-rs-relay"), "{error}");
    }

    #[test]
    fn every_peer_has_a_pinned_version() {
        for peer in &PEERS {
            let version = (peer.version)().unwrap();
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{}: {version}", peer.name);
        }
        assert!(pinned("khatru/go.mod", "github.com/nobody/nothing v").is_err());
    }

    #[test]
    fn quoted_path_is_one_shell_word() {
        assert_eq!(quoted("/a b/it's".as_ref()).unwrap(), r"'/a b/it'\''s'");
    }
}
