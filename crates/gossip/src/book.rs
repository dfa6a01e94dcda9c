//! Who is known, and where: those the operator names, and those that were met. The latter are kept in a file, so that a
//! node that starts anew finds its way without help.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File},
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use iroh::{EndpointAddr, address_lookup::memory::MemoryLookup};
use serde::{Deserialize, Serialize};

use crate::{
    clock::now,
    peer::{PeerAddress, PeerId},
    settings::PeerPolicy,
};

const FILE: &str = "peers.json";
/// Peers that are remembered; who was not seen for longest is forgotten first.
const MOST_PEERS: usize = 256;
/// Addresses of one of them.
const MOST_ADDRESSES: usize = 8;

/// Who is known.
#[derive(Debug)]
pub(crate) struct Book {
    known: Mutex<Known>,
    /// Where the endpoint looks addresses up.
    lookup: MemoryLookup,
    path: PathBuf,
    has_changed: AtomicBool,
    /// Somebody new, or somewhere else.
    has_news: AtomicBool,
}

/// Who that is: one lock for both, since each is read in the light of the other.
#[derive(Debug)]
struct Known {
    rules: Rules,
    met: HashMap<PeerId, Met>,
}

/// What the operator says.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    /// We do not talk to ourselves.
    own: PeerId,
    policy: PeerPolicy,
    named: BTreeMap<PeerId, EndpointAddr>,
}

/// A peer that was met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Met {
    pub(crate) addresses: BTreeSet<SocketAddr>,
    /// When, in Unix seconds.
    pub(crate) seen: u64,
}

impl Book {
    pub(crate) fn open(own: PeerId, policy: PeerPolicy, named: &[PeerAddress], directory: &Path) -> Self {
        let path = directory.join(FILE);
        let met = read(&path).unwrap_or_else(|why| {
            tracing::warn!(path = %path.display(), why, "peers that were met can't be read; they are met anew");
            HashMap::new()
        });
        let book = Self {
            known: Mutex::new(Known { rules: Rules { own, policy, named: BTreeMap::new() }, met }),
            lookup: MemoryLookup::new(),
            path,
            has_changed: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
        };
        book.change(policy, named);
        book
    }

    /// The operator says something else. Returns whether it is something else.
    pub(crate) fn change(&self, policy: PeerPolicy, named: &[PeerAddress]) -> bool {
        let mut known = self.known();
        let own = known.rules.own;
        let others = named.iter().filter(|peer| peer.id() != own);
        let rules = Rules { own, policy, named: others.map(|peer| (peer.id(), peer.endpoint().clone())).collect() };
        let has_changed = known.rules != rules;
        known.rules = rules;
        for (id, met) in &known.met {
            self.look_up(&known.rules, *id, &met.addresses);
        }
        known.rules.named.values().for_each(|address| self.lookup.add_endpoint_info(address.clone()));
        has_changed
    }

    /// From now on a peer is looked for where it was met and where the operator says, and nowhere else.
    fn look_up(&self, rules: &Rules, id: PeerId, addresses: &BTreeSet<SocketAddr>) {
        self.lookup.remove_endpoint_info(id);
        if rules.welcomes(&id) {
            let named = rules.named.get(&id).cloned().unwrap_or_else(|| EndpointAddr::new(id));
            self.lookup.set_endpoint_info(addresses.iter().fold(named, |address, one| address.with_ip_addr(*one)));
        }
    }

    /// For an endpoint.
    pub(crate) fn lookup(&self) -> MemoryLookup {
        self.lookup.clone()
    }

    /// Whether addresses are believed that other peers tell.
    pub(crate) fn believes_others(&self) -> bool {
        self.known().rules.policy == PeerPolicy::Open
    }

    /// Whether we talk to it at all.
    pub(crate) fn is_welcome(&self, id: &PeerId) -> bool {
        self.known().rules.welcomes(id)
    }

    /// Whether nobody is known.
    pub(crate) fn is_empty(&self) -> bool {
        let Known { rules, met } = &*self.known();
        rules.named.is_empty() && (rules.policy == PeerPolicy::Known || met.is_empty())
    }

    /// Whether the operator names it.
    pub(crate) fn is_named(&self, id: &PeerId) -> bool {
        self.known().rules.named.contains_key(id)
    }

    /// Notes that a peer is there.
    pub(crate) fn met(&self, id: PeerId, addresses: impl IntoIterator<Item = SocketAddr>) {
        let Known { rules, met: all } = &mut *self.known();
        if !rules.welcomes(&id) {
            return;
        }
        let addresses: BTreeSet<SocketAddr> = addresses.into_iter().take(MOST_ADDRESSES).collect();
        if !addresses.is_empty() {
            self.look_up(rules, id, &addresses);
        }
        let met = all.entry(id).or_default();
        met.seen = now().seconds().0;
        if !addresses.is_empty() && met.addresses != addresses {
            met.addresses = addresses;
            self.has_news.store(true, Ordering::Relaxed);
        }
        if all.len() > MOST_PEERS
            && let Some(oldest) = all.iter().min_by_key(|(_, met)| met.seen).map(|(id, _)| *id)
        {
            all.remove(&oldest);
            if !rules.named.contains_key(&oldest) {
                self.lookup.remove_endpoint_info(oldest);
            }
        }
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Whom a topic may be joined with: no more than `most`, those the operator names first, then the latest met.
    pub(crate) fn candidates(&self, except: &BTreeSet<PeerId>, most: usize) -> Vec<PeerId> {
        let Known { rules, met: all } = &*self.known();
        let mut met: Vec<(&PeerId, u64)> = all.iter().map(|(id, met)| (id, met.seen)).collect();
        met.sort_unstable_by_key(|(id, seen)| (std::cmp::Reverse(*seen), **id));
        let met = met.into_iter().map(|(id, _)| id).filter(|id| !rules.named.contains_key(*id));
        let wanted = |id: &&PeerId| rules.welcomes(id) && !except.contains(*id);
        rules.named.keys().chain(met).filter(wanted).take(most).copied().collect()
    }

    /// Everybody, with what is known of them.
    pub(crate) fn everybody(&self) -> BTreeMap<PeerId, Met> {
        let Known { rules, met } = &*self.known();
        let mut all: BTreeMap<PeerId, Met> = met.iter().map(|(id, met)| (*id, met.clone())).collect();
        for (id, address) in &rules.named {
            all.entry(*id).or_default().addresses.extend(address.ip_addrs());
        }
        all.retain(|id, _| rules.welcomes(id));
        all
    }

    /// Whether more would be lost with the process than when somebody was last seen.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed)
    }

    /// Writes those that were met, if something has changed. Blocks for as long as the disk takes.
    pub(crate) fn write(&self) {
        self.has_news.store(false, Ordering::Relaxed);
        if !self.has_changed.swap(false, Ordering::Relaxed) {
            return;
        }
        let all: BTreeMap<String, Met> =
            self.known().met.iter().map(|(id, met)| (id.to_string(), met.clone())).collect();
        if let Err(error) = write(&self.path, &all) {
            tracing::warn!(%error, path = %self.path.display(), "peers that were met can't be kept");
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    fn welcomes(&self, id: &PeerId) -> bool {
        *id != self.own && (self.policy == PeerPolicy::Open || self.named.contains_key(id))
    }
}

fn read(path: &Path) -> Result<HashMap<PeerId, Met>, String> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(HashMap::new()),
        text => text.map_err(|error| error.to_string())?,
    };
    let all: BTreeMap<String, Met> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(all.into_iter().take(MOST_PEERS).filter_map(|(id, met)| Some((id.parse().ok()?, met))).collect())
}

/// Written aside and renamed: a crash leaves the old one.
fn write(path: &Path, all: &BTreeMap<String, Met>) -> std::io::Result<()> {
    let part = path.with_extension("part");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    serde_json::to_writer_pretty(&mut file, all)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use iroh::SecretKey;

    use super::*;

    fn id(number: u16) -> PeerId {
        let mut bytes = [1; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        SecretKey::from_bytes(&bytes).public()
    }

    fn named(number: u16) -> PeerAddress {
        format!("{}@127.0.0.1:{}", id(number), 1_000 + number).parse().unwrap()
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn those_that_were_met_are_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Book::open(id(0), PeerPolicy::Open, &[named(1)], dir.path());
        let book = open();
        book.met(id(2), [address(1)]);
        book.write();
        book.met(id(2), [address(1)]);
        book.met(id(2), []);
        assert!(!book.has_news(), "it is where it was");
        book.met(id(2), [address(2)]);
        book.met(id(0), [address(9)]);
        assert!(book.has_news());
        book.write();
        assert!(!book.has_news());
        let again = open();
        assert_eq!(again.candidates(&BTreeSet::new(), 10), [id(1), id(2)], "not oneself");
        assert_eq!(again.candidates(&BTreeSet::from([id(1)]), 10), [id(2)]);
        assert_eq!(again.everybody()[&id(2)].addresses, BTreeSet::from([address(2)]));
        let looked_up = again.lookup().get_endpoint_info(id(2)).unwrap().into_endpoint_addr();
        assert_eq!(looked_up.ip_addrs().collect::<Vec<_>>(), [&address(2)], "not where it was before");
    }

    #[test]
    fn where_only_known_peers_are_welcome_others_are_neither_met_nor_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(id(0), PeerPolicy::Open, &[], dir.path());
        book.met(id(2), [address(2)]);
        book.write();
        let book = Book::open(id(0), PeerPolicy::Open, &[], dir.path());
        assert!(book.is_welcome(&id(2)) && book.lookup().get_endpoint_info(id(2)).is_some());
        assert!(book.change(PeerPolicy::Known, &[named(1)]) && !book.change(PeerPolicy::Known, &[named(1)]));
        book.met(id(3), [address(3)]);
        assert!(book.is_welcome(&id(1)) && !book.is_welcome(&id(2)) && !book.is_welcome(&id(3)));
        assert_eq!(book.candidates(&BTreeSet::new(), 10), [id(1)]);
        assert!(book.lookup().get_endpoint_info(id(2)).is_none());
    }

    #[test]
    fn the_file_does_not_grow_and_nonsense_in_it_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(id(0), PeerPolicy::Open, &[], dir.path());
        for number in 1..=MOST_PEERS as u16 + 10 {
            book.met(id(number), (0..20).map(address));
        }
        assert_eq!(book.everybody().len(), MOST_PEERS);
        assert!(book.everybody().values().all(|met| met.addresses.len() <= MOST_ADDRESSES));
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(Book::open(id(0), PeerPolicy::Open, &[], dir.path()).everybody().is_empty());
    }
}
