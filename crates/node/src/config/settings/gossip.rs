//! `[gossip]`

use std::{net::SocketAddr, time::Duration};

use kukuri_config::{ByteSize, HttpUrl, Switch, section};
use kukuri_gossip::{CatchUpSettings, GossipLimits, GossipSettings, PeerAddress, PeerPolicy, Rate};

use super::Settings;
use crate::config::{AuthMode, Foreign};

section! {
    /// Exchanging events with other nodes, without a server in between (iroh-gossip). Every event that a client
    /// publishes here goes to all nodes that carry one of its topics. See [gossip.md](gossip.md).
    ja "他のノードとの、サーバーを介さないイベントの交換（iroh-gossip）。クライアントがここに投稿したイベントは、そのトピックを\
        扱うすべてのノードに届きます。[gossip.md](gossip.md) を参照してください。"
    Gossip in "gossip." {
        /// Whether the node connects to others: `on` or `off`. With no known peer, and listening on this machine only,
        /// `on` sends nothing.
        ja "他のノードと接続するかどうか（`on` または `off`）。既知のピアがなく、このマシンだけで待ち受けている間は、`on` でも\
            何も送信しません。"
        enabled: Switch = Switch::On, needs restart;
        /// The UDP address the node listens on for peers. By default only this machine can reach it, on a port that is
        /// free when it starts: for other machines, set an address they can reach and a port, such as `0.0.0.0:7778`.
        ja "ピアからの接続を待ち受ける UDP アドレス。既定では、起動時に空いているポートを使い、このマシンからしか接続\
            できません。他のマシンから接続できるようにするには、`0.0.0.0:7778` のように到達可能なアドレスとポートを指定します。"
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 0)), needs restart;
        /// Further addresses by which peers can reach the node, such as that of a router that forwards a port. Peers
        /// are told of them.
        ja "ピアがこのノードに到達できる、その他のアドレス。ポートを転送するルーターのアドレスなど。ピアに通知します。"
        addresses: Vec<SocketAddr> = Vec::new(), needs restart;
        /// Which peers may connect. `known`: only the peers in `known`; connections of others are refused. `open`: all
        /// peers; they are remembered in `peers.json` in the data directory. With `auth.mode = "required"` it is always
        /// `known`.
        ja "接続を許すピア。`known`：`known` に挙げたピアだけで、それ以外は拒否します。`open`：すべてのピア。接続したピアは\
            データディレクトリの `peers.json` に記録します。`auth.mode = \"required\"` のときは常に `known` になります。"
        peers: Foreign<PeerPolicy> = Foreign(PeerPolicy::default());
        /// Peers to connect with: tickets as `kukuri-node gossip ticket` prints them, or `id@address`.
        ja "接続先のピア。`kukuri-node gossip ticket` が表示するチケット、または `ID@アドレス` で指定します。"
        known: Vec<Foreign<PeerAddress>> = Vec::new();
        /// URLs of iroh relay servers, for peers that can't reach each other. Empty: none is used.
        ja "直接接続できないピアのための iroh リレーサーバーの URL。空なら使いません。"
        relays: Vec<HttpUrl> = Vec::new(), needs restart;
        /// The most topics that are carried at a time, those of the highest priority first. One costs some 40 KiB of
        /// memory.
        ja "同時に扱うトピックの最大数。優先度の高いものから選びます。1 つにつき約 40 KiB のメモリを使います。"
        max_topics: usize = GossipLimits::default().max_topics, at least 1, at most 16_000, needs restart;
        /// The most peers that are connected at a time. The peers in `known` are always let in.
        ja "同時に接続するピアの最大数。`known` のピアは常に接続できます。"
        max_peers: usize = GossipLimits::default().max_peers, at least 1, needs restart;
        /// The messages one peer may send in a second, or pass on for others. Messages beyond it are dropped.
        ja "1 つのピアが 1 秒間に送信または転送できるメッセージの数。超えた分は破棄します。"
        peer_messages_per_second: u32 = GossipLimits::default().peer.messages, at least 1, needs restart;
        /// The size of these messages.
        ja "同じくメッセージのサイズ。"
        peer_bytes_per_second: ByteSize = ByteSize(GossipLimits::default().peer.bytes),
            at least ByteSize(128 << 10), needs restart;
        /// The messages that are accepted from all peers in a second.
        ja "全ピアから 1 秒間に受け取るメッセージの数。"
        received_messages_per_second: u32 = GossipLimits::default().received.messages, at least 1, needs restart;
        /// The size of these messages.
        ja "同じくメッセージのサイズ。"
        received_bytes_per_second: ByteSize = ByteSize(GossipLimits::default().received.bytes),
            at least ByteSize(128 << 10), needs restart;
        /// The messages that are sent to one topic in a second. Messages beyond it wait for up to 30 seconds.
        ja "1 つのトピックに 1 秒間に送信するメッセージの数。超えた分は最大 30 秒待たせます。"
        topic_messages_per_second: u32 = GossipLimits::default().topic.messages, at least 1, needs restart;
        /// The size of these messages.
        ja "同じくメッセージのサイズ。"
        topic_bytes_per_second: ByteSize = ByteSize(GossipLimits::default().topic.bytes),
            at least ByteSize(128 << 10), needs restart;
        /// The messages that are sent to all topics in a second.
        ja "全トピックに 1 秒間に送信するメッセージの数。"
        sent_messages_per_second: u32 = GossipLimits::default().sent.messages, at least 1, needs restart;
        /// The size of these messages.
        ja "同じくメッセージのサイズ。"
        sent_bytes_per_second: ByteSize = ByteSize(GossipLimits::default().sent.bytes),
            at least ByteSize(128 << 10), needs restart;
        /// How often each topic is compared with one of its peers, in addition to every arrival of a peer, so that lost
        /// events are fetched. A topic whose policy says `backfill = false` is not compared.
        ja "各トピックをピアの 1 つと照合し、取りこぼしたイベントを補う間隔。ピアが接続したときにも照合します。ポリシーが \
            `backfill = false` のトピックは照合しません。"
        catch_up_every: Duration = CatchUpSettings::default().interval, at least Duration::from_secs(1), needs restart;
        /// The events that one comparison fetches, or gives, in a second.
        ja "1 回の照合で 1 秒間に取得または提供するイベントの数。"
        catch_up_events_per_second: u32 = CatchUpSettings::default().events_per_second, at least 1, needs restart;
        /// The size of these events.
        ja "同じくイベントのサイズ。"
        catch_up_bytes_per_second: ByteSize = ByteSize(CatchUpSettings::default().bytes_per_second),
            at least ByteSize(128 << 10), needs restart;
    }
}

impl Settings {
    /// `gossip.peers`. If clients must authenticate, peers that the operator did not name are refused too.
    pub(crate) fn peer_policy(&self) -> PeerPolicy {
        match self.auth.mode {
            AuthMode::Required => PeerPolicy::Known,
            AuthMode::Off => self.gossip.peers.0,
        }
    }

    pub(crate) fn known_peers(&self) -> Vec<PeerAddress> {
        self.gossip.known.iter().map(|peer| peer.0.clone()).collect()
    }

    pub(crate) fn gossip_settings(&self) -> GossipSettings {
        let gossip = &self.gossip;
        let rate = |messages, bytes: ByteSize| Rate { messages, bytes: bytes.0 };
        GossipSettings {
            listen: gossip.listen,
            addresses: gossip.addresses.clone(),
            peers: self.peer_policy(),
            known: self.known_peers(),
            relays: gossip.relays.iter().map(|url| url.as_ref().to_owned()).collect(),
            directory: self.data.clone(),
            limits: GossipLimits {
                max_topics: gossip.max_topics,
                max_peers: gossip.max_peers,
                peer: rate(gossip.peer_messages_per_second, gossip.peer_bytes_per_second),
                received: rate(gossip.received_messages_per_second, gossip.received_bytes_per_second),
                topic: rate(gossip.topic_messages_per_second, gossip.topic_bytes_per_second),
                sent: rate(gossip.sent_messages_per_second, gossip.sent_bytes_per_second),
            },
            catch_up: CatchUpSettings {
                interval: gossip.catch_up_every,
                events_per_second: gossip.catch_up_events_per_second,
                bytes_per_second: gossip.catch_up_bytes_per_second.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_no_other_machine_is_reached() {
        let set = Settings::default().gossip_settings();
        assert!(set.listen.ip().is_loopback() && set.known.is_empty() && set.relays.is_empty());
    }

    #[test]
    fn required_authentication_allows_only_known_peers() {
        let mut settings = Settings::default();
        assert_eq!(settings.peer_policy(), PeerPolicy::Open);
        settings.auth.mode = AuthMode::Required;
        assert_eq!(settings.peer_policy(), PeerPolicy::Known);
    }
}
