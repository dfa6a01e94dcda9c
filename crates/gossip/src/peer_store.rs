//! The peers that this node knows, and their addresses: those the operator has configured, and those seen as neighbours.
//! The latter are kept in a file, so that a restarted node reaches them without help.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use iroh::{EndpointAddr, address_lookup::memory::MemoryLookup};
use kukuri_engine::clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{
    peer::{PeerAddress, PeerId},
    settings::PeerPolicy,
};

const FILE: &str = "peers.json";
/// Seen peers that are kept; the one seen longest ago is dropped first.
const MAX_SEEN_PEERS: usize = 256;
const MAX_ADDRESSES_PER_PEER: usize = 8;
/// Known peers that topics are joined with.
pub(crate) const MAX_CANDIDATES: usize = 16;

#[derive(Debug)]
pub(crate) struct PeerStore {
    peers: Mutex<Peers>,
    /// The addresses that the endpoint dials.
    lookup: MemoryLookup,
    path: PathBuf,
}

/// Under one lock: the configuration decides which of the seen peers count.
#[derive(Debug)]
struct Peers {
    /// This node, which is no peer of its own.
    own: PeerId,
    policy: PeerPolicy,
    configured: BTreeMap<PeerId, EndpointAddr>,
    seen: BTreeMap<PeerId, SeenPeer>,
    /// Something is not written yet.
    has_changed: bool,
    /// A new peer or address is not written yet: written sooner than a new time.
    has_new_address: bool,
}

/// A peer that was a neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenPeer {
    pub(crate) addresses: BTreeSet<SocketAddr>,
    /// When it was last seen, in Unix seconds.
    pub(crate) seen: u64,
}

impl PeerStore {
    pub(crate) fn open(own: PeerId, policy: PeerPolicy, configured: &[PeerAddress], directory: &Path) -> Self {
        let path = directory.join(FILE);
        let seen = read_file(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "can't read the file of seen peers; starting without them");
            BTreeMap::new()
        });
        let none = BTreeMap::new();
        let peers = Peers { own, policy, configured: none, seen, has_changed: false, has_new_address: false };
        let store = Self { peers: Mutex::new(peers), lookup: MemoryLookup::new(), path };
        store.configure(policy, configured);
        store
    }

    /// Applies a new configuration. Returns whether it differs from the present one.
    pub(crate) fn configure(&self, policy: PeerPolicy, configured: &[PeerAddress]) -> bool {
        let peers = &mut *self.peers.lock();
        let others = configured.iter().filter(|peer| peer.id() != peers.own);
        let configured = others.map(|peer| (peer.id(), peer.0.clone())).collect();
        let has_changed = (peers.policy, &peers.configured) != (policy, &configured);
        (peers.policy, peers.configured) = (policy, configured);
        peers.seen.keys().for_each(|id| self.update_lookup(peers, *id));
        peers.configured.values().for_each(|address| self.lookup.add_endpoint_info(address.clone()));
        has_changed
    }

    /// Replaces the addresses at which the endpoint dials a seen peer: those seen and those configured.
    fn update_lookup(&self, peers: &Peers, id: PeerId) {
        self.lookup.remove_endpoint_info(id);
        if let Some(seen) = peers.seen.get(&id).filter(|_| peers.allows(&id)) {
            let configured = peers.configured.get(&id).cloned().unwrap_or_else(|| EndpointAddr::new(id));
            let address = seen.addresses.iter().fold(configured, |address, one| address.with_ip_addr(*one));
            self.lookup.set_endpoint_info(address);
        }
    }

    pub(crate) fn lookup(&self) -> MemoryLookup {
        self.lookup.clone()
    }

    /// Whether the endpoint dials addresses that peers tell of each other.
    pub(crate) fn trusts_addresses_of_peers(&self) -> bool {
        self.peers.lock().policy == PeerPolicy::Open
    }

    /// Whether the peer may connect, and be dialled.
    pub(crate) fn is_allowed(&self, id: &PeerId) -> bool {
        self.peers.lock().allows(id)
    }

    /// Whether there is no peer to dial.
    pub(crate) fn is_empty(&self) -> bool {
        let peers = self.peers.lock();
        peers.configured.is_empty() && (peers.policy == PeerPolicy::Known || peers.seen.is_empty())
    }

    pub(crate) fn is_configured(&self, id: &PeerId) -> bool {
        self.peers.lock().configured.contains_key(id)
    }

    /// Records that a peer was seen now. No addresses: the known ones stay.
    pub(crate) fn record_seen(&self, id: PeerId, addresses: impl IntoIterator<Item = SocketAddr>) {
        let peers = &mut *self.peers.lock();
        if !peers.allows(&id) {
            return;
        }
        let addresses: BTreeSet<SocketAddr> = addresses.into_iter().take(MAX_ADDRESSES_PER_PEER).collect();
        peers.has_changed = true;
        let peer = peers.seen.entry(id).or_default();
        peer.seen = clock::now().seconds().0;
        if !addresses.is_empty() && peer.addresses != addresses {
            peer.addresses = addresses;
            peers.has_new_address = true;
            self.update_lookup(peers, id);
        }
        if peers.seen.len() > MAX_SEEN_PEERS
            && let Some(oldest) = peers.seen.iter().min_by_key(|(_, peer)| peer.seen).map(|(id, _)| *id)
        {
            peers.seen.remove(&oldest);
            if !peers.configured.contains_key(&oldest) {
                self.lookup.remove_endpoint_info(oldest);
            }
        }
    }

    /// Peers that a topic may be joined with, at most [`MAX_CANDIDATES`]: configured ones first, then the latest seen.
    pub(crate) fn candidates(&self) -> Vec<PeerId> {
        let peers = &*self.peers.lock();
        let mut seen: Vec<(&PeerId, &SeenPeer)> = peers.seen.iter().collect();
        seen.sort_unstable_by_key(|(id, peer)| (Reverse(peer.seen), **id));
        let seen = seen.into_iter().map(|(id, _)| id).filter(|id| !peers.configured.contains_key(*id));
        let allowed = peers.configured.keys().chain(seen).filter(|id| peers.allows(id));
        allowed.take(MAX_CANDIDATES).copied().collect()
    }

    /// All peers that may connect, with their addresses.
    pub(crate) fn all(&self) -> BTreeMap<PeerId, SeenPeer> {
        let peers = self.peers.lock();
        let mut all = peers.seen.clone();
        for (id, address) in &peers.configured {
            all.entry(*id).or_default().addresses.extend(address.ip_addrs());
        }
        all.retain(|id, _| peers.allows(id));
        all
    }

    /// Whether a new peer or address is not written yet.
    pub(crate) fn has_new_address(&self) -> bool {
        self.peers.lock().has_new_address
    }

    /// Writes the seen peers, if something has changed. Blocks on the disk.
    pub(crate) fn save(&self) {
        let seen = {
            let mut peers = self.peers.lock();
            peers.has_new_address = false;
            if !std::mem::take(&mut peers.has_changed) {
                return;
            }
            peers.seen.clone()
        };
        if let Err(error) = write_file(&self.path, &seen) {
            tracing::warn!(%error, path = %self.path.display(), "can't write the file of seen peers");
        }
    }
}

impl Peers {
    fn allows(&self, id: &PeerId) -> bool {
        *id != self.own && (self.policy == PeerPolicy::Open || self.configured.contains_key(id))
    }
}

fn read_file(path: &Path) -> io::Result<BTreeMap<PeerId, SeenPeer>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text?,
    };
    let seen: BTreeMap<String, SeenPeer> = serde_json::from_str(&text)?;
    // A malformed id loses one peer, not all.
    let peers = seen.into_iter().filter_map(|(id, peer)| Some((id.parse().ok()?, peer)));
    Ok(peers.take(MAX_SEEN_PEERS).collect())
}

fn write_file(path: &Path, seen: &BTreeMap<PeerId, SeenPeer>) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(seen)?;
    text.push(b'\n');
    kukuri_files::write(path, &text)
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

    fn configured(number: u16) -> PeerAddress {
        format!("{}@127.0.0.1:{}", id(number), 1_000 + number).parse().unwrap()
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn seen_peers_are_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PeerStore::open(id(0), PeerPolicy::Open, &[configured(1)], dir.path());
        let peers = open();
        peers.record_seen(id(2), [address(1)]);
        peers.save();
        peers.record_seen(id(2), [address(1)]);
        peers.record_seen(id(2), []);
        assert!(!peers.has_new_address(), "the address is the same");
        peers.record_seen(id(2), [address(2)]);
        peers.record_seen(id(0), [address(9)]);
        assert!(peers.has_new_address());
        peers.save();
        assert!(!peers.has_new_address());
        let again = open();
        assert_eq!(again.candidates(), [id(1), id(2)], "without this node");
        assert_eq!(again.all()[&id(2)].addresses, BTreeSet::from([address(2)]));
        let looked_up = again.lookup().get_endpoint_info(id(2)).unwrap().into_endpoint_addr();
        assert_eq!(looked_up.ip_addrs().collect::<Vec<_>>(), [&address(2)], "without the former address");
    }

    #[test]
    fn a_malformed_id_in_the_file_loses_one_peer_not_all() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PeerStore::open(id(0), PeerPolicy::Open, &[], dir.path());
        let peers = open();
        [2, 3].into_iter().for_each(|number| peers.record_seen(id(number), [address(number)]));
        peers.save();
        let file = dir.path().join(FILE);
        let text = fs::read_to_string(&file).unwrap().replace(&id(2).to_string(), "not an id");
        fs::write(&file, text).unwrap();
        assert_eq!(open().candidates(), [id(3)]);
    }

    #[test]
    fn with_policy_known_other_peers_are_neither_recorded_nor_dialled() {
        let dir = tempfile::tempdir().unwrap();
        let peers = PeerStore::open(id(0), PeerPolicy::Open, &[], dir.path());
        peers.record_seen(id(2), [address(2)]);
        peers.save();
        let peers = PeerStore::open(id(0), PeerPolicy::Open, &[], dir.path());
        assert!(peers.is_allowed(&id(2)) && peers.lookup().get_endpoint_info(id(2)).is_some());
        assert!(
            peers.configure(PeerPolicy::Known, &[configured(1)])
                && !peers.configure(PeerPolicy::Known, &[configured(1)])
        );
        peers.record_seen(id(3), [address(3)]);
        assert!(peers.is_allowed(&id(1)) && !peers.is_allowed(&id(2)) && !peers.is_allowed(&id(3)));
        assert_eq!(peers.candidates(), [id(1)]);
        assert!(peers.lookup().get_endpoint_info(id(2)).is_none());
    }

    #[test]
    fn the_file_is_bounded_and_a_malformed_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let peers = PeerStore::open(id(0), PeerPolicy::Open, &[], dir.path());
        for number in 1..=MAX_SEEN_PEERS as u16 + 10 {
            peers.record_seen(id(number), (0..20).map(address));
        }
        assert_eq!(peers.all().len(), MAX_SEEN_PEERS);
        assert!(peers.all().values().all(|peer| peer.addresses.len() <= MAX_ADDRESSES_PER_PEER));
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(PeerStore::open(id(0), PeerPolicy::Open, &[], dir.path()).all().is_empty());
    }
}
