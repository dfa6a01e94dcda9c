//! Every key: what it does, its type, its default. `docs/configuration.md` is made from this file.

use std::{net::SocketAddr, path::PathBuf};

use axum::http::HeaderName;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kukuri_domain::{DeletionMode, PublicKey, topic::TopicsMode};
use kukuri_gossip::{PeerAddress, PeerPolicy};
use kukuri_search::document::DEFAULT_KINDS;

use super::{
    kinds::Kinds,
    moment::Moment,
    names::{AuthMode, IndexPlace, LogFilter, ReservedTopic, Switch},
    net::{Network, PublicUrl, WebUrl},
    percent::Percent,
    place::StorePlace,
    section::section,
    size::Size,
    span::{Keeping, Span},
};

section! {
    /// The node itself. These keys stand at the beginning of the file, before any section.
    Settings in "" {
        /// The address and port the node listens on. `0.0.0.0:7777` listens on every IPv4 address, `[::]:7777` on every
        /// address.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7777)), needs restart;
        /// The URL clients know the node by. Behind a reverse proxy it must be set, or authentication (NIP-42) and
        /// vanish requests (NIP-62) are not recognised. If it is not set: `ws://` and the listening address.
        public_url: Option<PublicUrl> = None, such as "wss://relay.example.com";
        /// The directory for what the node keeps beside events, and for those unless `store` says otherwise; made if it is
        /// not there. Each node has its own, also if several share a database.
        data: PathBuf = PathBuf::from("data"), needs restart;
        /// Where events are stored: `lmdb:` and a directory on a local disk, or the URL of a Postgres database, such as
        /// `postgres://kukuri@db.example.com/kukuri`, which any number of nodes may share. A password may stand in it (it is
        /// never shown), or in `PGPASSWORD` or `~/.pgpass`. If it is not set: `store` in the data directory.
        store: Option<StorePlace> = None, such as "lmdb:/var/lib/kukuri/store", needs restart;
        /// Whether the limits in `[rates]` hold: `on` or `off`. Turn them off for load tests only.
        rate_limits: Switch = Switch::On;
        /// What a deletion request does to stored events. `soft`: they stay, hidden, until retention removes them.
        /// `physical`: they are removed at once.
        deletion: DeletionMode = DeletionMode::Soft, needs restart;
        /// How much is logged: `error`, `warn`, `info`, `debug` or `trace`, also by module, as in
        /// `info,kukuri_relay=debug`.
        log: LogFilter = LogFilter::new("info"), needs restart;
    }
    sections {
        relay: Relay,
        topics: Topics,
        auth: Auth,
        limits: Limits,
        rates: Rates,
        deny: Deny,
        proxy: Proxy,
        retention: Retention,
        capacity: Capacity,
        disk: Disk,
        backlog: Backlog,
        postgres: Postgres,
        search: Search,
        gossip: Gossip,
    }
}

section! {
    /// How the node presents itself to clients (NIP-11).
    Relay in "relay." {
        /// The name of the node.
        name: String = "kukuri-node".to_owned();
        /// What the node is for, in a sentence or two.
        description: String = "A community node".to_owned();
        /// How to reach the operator: a `mailto:` address or a URL.
        contact: Option<String> = None, such as "mailto:operator@example.com";
        /// The operator's public key, 64 lowercase hex digits.
        pubkey: Option<PublicKey> = None,
            such as "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
        /// The URL of a square picture.
        icon: Option<WebUrl> = None, such as "https://example.com/icon.png";
        /// The languages spoken here, as IETF language tags. Empty: any.
        language_tags: Vec<String> = Vec::new();
        /// The URL of a page that says what may be posted.
        posting_policy: Option<WebUrl> = None, such as "https://example.com/policy";
    }
}

section! {
    /// Which topics there are, and who may open them.
    Topics in "topics." {
        /// `required`: events and filters must name topics. `global`: what names none belongs to `kukuri:global`, so
        /// that clients that know nothing of topics work.
        mode: TopicsMode = TopicsMode::Required;
        /// The network id that goes into the hash of a topic's name. Nodes of one network have the same; another one
        /// makes every name another topic.
        network: String = "kukuri:main:".to_owned(), needs restart;
        /// Further ids that are topics: exact ids, or all under a prefix, as in `kukuri:room:*`.
        reserved: Vec<ReservedTopic> = Vec::new();
        /// Whether the first event in a topic opens it. `false`: only the operator opens topics.
        open: bool = true;
        /// The most topics that are open at a time.
        max: usize = 1_000;
        /// A topic that was opened by an event is closed again when it has had no new one for this long.
        idle: Span = Span::days(7), at least Span::minutes(1);
        /// The topics that one IP address, or one public key, may open in an hour.
        opened_per_hour: u32 = 20;
    }
}

section! {
    /// Whether clients must say who they are (NIP-42).
    Auth in "auth." {
        /// `required`: only authenticated clients may read and write. `off`: nobody is asked.
        mode: AuthMode = AuthMode::Off;
        /// From when on `required` holds: a time with its offset from UTC (RFC 3339), or Unix seconds. If it is not
        /// set: at once.
        enforce_at: Option<Moment> = None, such as "2030-01-31T12:00:00Z";
        /// How many seconds clients that are connected when it begins to hold have to authenticate.
        grace_seconds: u64 = 300, at most 31_536_000;
        /// How many seconds a new client has to authenticate before it is closed.
        ws_auth_timeout_seconds: u64 = 10, at least 1, at most 3_600;
    }
}

section! {
    /// How large events and requests may be, and how much one connection may hold. Sizes are bytes, or text such as
    /// `"128KiB"`.
    Limits in "limits." {
        /// The size of an event's JSON as this node writes it.
        event_bytes: Size = Size::kib(128), at least Size::bytes(1);
        /// The tags of an event.
        tag_count: usize = 2_000;
        /// The size of the text in all tags of an event together.
        tags_bytes: Size = Size::kib(96);
        /// The size of the text in one tag.
        tag_bytes: Size = Size::kib(8);
        /// The topics an event may belong to.
        topics_per_event: usize = 50, at least 1;
        /// The size of an event's content.
        content_bytes: Size = Size::kib(96);
        /// How far an event's `created_at` may lie ahead of this node's clock.
        created_at_ahead: Span = Span::minutes(15);
        /// The size of one WebSocket message.
        message_bytes: Size = Size::kib(512), at least Size::kib(1);
        /// The filters in one request.
        filters: usize = 20, at least 1;
        /// The values in all lists of one filter.
        filter_values: usize = 2_000, at least 1;
        /// The subscriptions one connection may have open.
        subscriptions: usize = 64, at least 1;
        /// The stored events one filter is answered with; a client that asks for more gets as many.
        limit: usize = 500, at least 1;
        /// The size of the stored events that one request is answered with. What is over it is left out, as by a limit.
        answer_bytes: Size = Size::mib(8), at least Size::kib(128);
        /// The events of one connection that may wait for their answer; no further ones are read until then.
        in_flight: usize = 1_024, at least 1;
        /// A connection that is silent for this long is pinged, and closed if it stays silent for as long again.
        idle: Span = Span::seconds(60), at least Span::seconds(1);
        /// The connections of all clients together.
        connections: usize = 10_000, at least 1;
        /// The NIP-77 sessions one connection may have open. 0 turns NIP-77 off.
        sync_sessions: usize = 4;
        /// The events one NIP-77 session may cover.
        sync_events: usize = 200_000, at least 1;
    }
}

section! {
    /// How often things may be done: counted for each IP address and, once a client has authenticated, for each public
    /// key. They hold while `rate_limits` is `on`.
    Rates in "rates." {
        /// The connections one IP address may have open.
        connections_per_ip: u32 = 50, at least 1;
        /// The connections one IP address may open in a minute.
        new_connections_per_minute: u32 = 120, at least 1;
        /// The events taken in a minute. A large one counts once more for every 16 KiB.
        events_per_minute: u32 = 600, at least 1;
        /// The events taken at once, after a pause.
        events_burst: u32 = 300, at least 1;
        /// The requests (REQ) answered in a minute.
        requests_per_minute: u32 = 600, at least 1;
        /// The requests answered at once, after a pause.
        requests_burst: u32 = 120, at least 1;
        /// The costly requests answered in a minute: REQ with `until`, COUNT and NEG-OPEN.
        backfill_per_minute: u32 = 120, at least 1;
        /// The costly requests answered at once, after a pause.
        backfill_burst: u32 = 60, at least 1;
    }
}

section! {
    /// Who and what is kept out. It concerns what comes in from now on; what is stored stays.
    Deny in "deny." {
        /// Authors whose events are refused, as public keys of 64 lowercase hex digits.
        pubkeys: Vec<PublicKey> = Vec::new();
        /// Kinds that are refused: numbers, or ranges such as `"20000-29999"`.
        kinds: Vec<Kinds> = Vec::new();
        /// IP addresses and networks (CIDR) that may not connect.
        ips: Vec<Network> = Vec::new();
    }
}

section! {
    /// How the node learns a client's address behind a reverse proxy.
    Proxy in "proxy." {
        /// The HTTP header in which the proxy writes the client's address. If it is not set, the address of the
        /// connection counts.
        header: Option<HeaderName> = None, such as "x-forwarded-for";
        /// The proxies that are believed: IP addresses and networks (CIDR). From anyone else the header is ignored.
        trusted: Vec<Network> = loopback();
    }
}

section! {
    /// How long what is kept, from when it came in: a time such as `30d`, or `forever`. Topics may differ. What would
    /// bring back purged or deleted events is refused.
    Retention in "retention." {
        /// Regular events.
        regular: Keeping = Keeping::days(30);
        /// The current versions of replaceable and addressable events.
        current: Keeping = Keeping::Forever;
        /// Versions that were replaced.
        replaced: Keeping = Keeping::days(7);
        /// Deletion and vanish requests and what is remembered of them. Not shorter than the longest time for events.
        requests: Keeping = Keeping::Forever;
        /// The ids of events that are gone, so that they are not taken in again. Not shorter than the longest time for
        /// events that is not `forever`.
        dedupe: Keeping = Keeping::days(180);
        /// The log of changes that other parts of the node follow.
        outbox: Keeping = Keeping::days(30);
    }
}

section! {
    /// How much may be stored, and what happens as that is reached, in percent of `max_events` or `max_bytes`,
    /// whichever is nearer. `live_only`, `shedding` and `purging` must ascend.
    Capacity in "capacity." {
        /// The most stored events, hidden ones counted in. If it is not set: no bound.
        max_events: Option<u64> = None, such as 10_000_000, needs restart;
        /// The most bytes of stored events, as JSON. If it is not set: no bound.
        max_bytes: Option<Size> = None, such as "20GiB", needs restart;
        /// From this many percent on, history from imports and other nodes is refused.
        live_only: Percent = Percent::new(80), needs restart;
        /// From this many percent on, topics of the lowest priority are refused too.
        shedding: Percent = Percent::new(90), needs restart;
        /// From this many percent on, the oldest events are purged.
        purging: Percent = Percent::new(100), needs restart;
        /// A stage is left this many points below where it began.
        leave_below: Percent = Percent::new(5), needs restart;
        /// A purge goes down to this many percent.
        purge_to: Percent = Percent::new(95), at least Percent::new(1), needs restart;
    }
}

section! {
    /// What happens as the disk fills up, by the free space in the file system of the embedded store: bytes, or text such
    /// as `"2GiB"`. The three must descend. With a store on Postgres they have no meaning: its disk is the server's.
    Disk in "disk." {
        /// With less free space than this, history from imports and other nodes is refused.
        live_only: Size = Size::gib(2);
        /// With less free space than this, topics of the lowest priority are refused too.
        shedding: Size = Size::gib(1);
        /// With less free space than this, nothing but deletion and vanish requests is taken in.
        full: Size = Size::mib(256);
    }
}

section! {
    /// What happens as those fall behind who follow the outbox, such as the index for search: in rows that are still to be
    /// done. The three must ascend.
    Backlog in "backlog." {
        /// From this many rows on, history from imports and other nodes is refused.
        live_only: u64 = 100_000, at least 1;
        /// From this many rows on, topics of the lowest priority are refused too.
        shedding: u64 = 500_000, at least 1;
        /// From this many rows on, an event of a client counts ten times in `[rates]`.
        cutting: u64 = 2_000_000, at least 1;
    }
}

section! {
    /// How a store on Postgres is used. With the embedded store these keys have no meaning.
    Postgres in "postgres." {
        /// The most sessions that read at a time. Beside them a node has two that write and one that listens.
        readers: u32 = 8, at least 1, at most 1_000, needs restart;
        /// Whether a node that starts makes the tables, or brings them up to date: `on` or `off`. `off`: it refuses to
        /// start on older ones, until `kukuri-node migrate` has been run.
        migrate: Switch = Switch::On, needs restart;
        /// How long the server may take to answer a query of a client.
        query_timeout: Span = Span::seconds(10), at least Span::seconds(1), at most Span::minutes(60), needs restart;
    }
}

section! {
    /// Finding posts by their words (NIP-50).
    Search in "search." {
        /// `embedded`: the node keeps an index, in `index` in the data directory. `postgres`: it is in the database of the
        /// store, in the schema `cn_search`, for all nodes on it; one of them keeps it. `off`: there is none, and the node
        /// refuses to search. If it is not set, it is where the store is.
        index: Option<IndexPlace> = None, such as "embedded", needs restart;
        /// The kinds that can be found: numbers, or ranges such as `"30000-39999"`. Private messages (4, 1059, 21059) never
        /// can. With other kinds the index is built anew at the next start; until that is done little is found. Nodes on one
        /// database set the same.
        kinds: Vec<Kinds> = DEFAULT_KINDS.map(Kinds::one).to_vec(), needs restart;
    }
}

section! {
    /// Carrying events to and from other nodes, without a server in between (iroh-gossip). Every event that a client
    /// publishes here goes to all nodes that carry one of its topics. See [gossip.md](gossip.md).
    Gossip in "gossip." {
        /// Whether the node talks to others: `on` or `off`. With no peer known, and listening on this machine only, `on` sends
        /// nothing.
        enabled: Switch = Switch::On, needs restart;
        /// The UDP address the node listens on for peers. By default only this machine can reach it, on a port that is free
        /// when it starts: to be found by others, set an address they can reach and a port, such as `0.0.0.0:7778`.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 0)), needs restart;
        /// Further addresses that peers can reach the node by, such as that of a router which passes a port on. They are told to
        /// peers.
        addresses: Vec<SocketAddr> = Vec::new(), needs restart;
        /// Who is talked to. `known`: the peers in `known` only; connections of others are refused. `open`: everybody; peers that
        /// were met are remembered in `peers.json` in the data directory. With `auth.mode = "required"` it is always `known`.
        peers: PeerPolicy = PeerPolicy::Open;
        /// Peers to connect with: tickets as `kukuri-node gossip ticket` prints them, or `id@address`.
        known: Vec<PeerAddress> = Vec::new();
        /// URLs of iroh relay servers, for peers that can't reach each other. If there are none, none is used.
        relays: Vec<WebUrl> = Vec::new(), needs restart;
        /// The most topics that are carried at a time, those of the highest priority first. One costs some 40 KiB of memory.
        max_topics: usize = 4_000, at least 1, at most 16_000, needs restart;
        /// The most peers that are connected at a time. Those in `known` always are let in.
        max_peers: usize = 128, at least 1, needs restart;
        /// The messages one peer may send in a second, or pass on for others. What is over it is dropped.
        peer_messages_per_second: u32 = 2_000, at least 1, needs restart;
        /// Their size.
        peer_bytes_per_second: Size = Size::mib(8), at least Size::kib(128), needs restart;
        /// The messages that are taken from all peers in a second.
        received_messages_per_second: u32 = 5_000, at least 1, needs restart;
        /// Their size.
        received_bytes_per_second: Size = Size::mib(32), at least Size::kib(128), needs restart;
        /// The messages that are sent to one topic in a second. What is over it waits for up to 30 seconds.
        topic_messages_per_second: u32 = 1_000, at least 1, needs restart;
        /// Their size.
        topic_bytes_per_second: Size = Size::mib(2), at least Size::kib(128), needs restart;
        /// The messages that are sent to all topics in a second.
        sent_messages_per_second: u32 = 2_000, at least 1, needs restart;
        /// Their size.
        sent_bytes_per_second: Size = Size::mib(4), at least Size::kib(128), needs restart;
        /// How often each topic is compared with one of its peers, beside every time that one comes: what was lost is made up
        /// for. A topic whose policy says `backfill = false` is left as it is.
        catch_up_every: Span = Span::seconds(60), at least Span::seconds(1), needs restart;
        /// The events that one such comparison brings, or gives, in a second.
        catch_up_events_per_second: u32 = 500, at least 1, needs restart;
        /// Their size.
        catch_up_bytes_per_second: Size = Size::mib(2), at least Size::kib(128), needs restart;
    }
}

fn loopback() -> Vec<Network> {
    let v4 = Ipv4Net::new_assert([127, 0, 0, 0].into(), 8);
    let v6 = Ipv6Net::new_assert(std::net::Ipv6Addr::LOCALHOST, 128);
    vec![IpNet::from(v4).into(), IpNet::from(v6).into()]
}
