//! Every key, one file per section: what the key does, in two languages, its type, default and bounds, and the part's
//! configuration made from it. A default that the part has itself is taken from there.

mod auth;
mod backlog;
mod bootstrap;
mod capacity;
mod clock;
mod deny;
mod disk;
mod gossip;
mod limits;
mod metrics;
mod operator;
mod postgres;
mod proxy;
mod rates;
mod relay;
mod retention;
mod search;
mod shutdown;
mod subscriptions;
mod topics;

use std::{net::SocketAddr, path::PathBuf};

use kukuri_config::{Switch, WebSocketUrl, section};
use kukuri_domain::DeletionMode;

pub(crate) use self::auth::Auth;
use self::{
    backlog::Backlog, bootstrap::Bootstrap, capacity::Capacity, clock::Clock, deny::Deny, disk::Disk, gossip::Gossip,
    limits::Limits, metrics::Metrics, operator::Operator, postgres::Postgres, proxy::Proxy, rates::Rates, relay::Relay,
    retention::Retention, search::Search, shutdown::Shutdown, subscriptions::Subscriptions, topics::Topics,
};
use super::{
    Foreign,
    place::{ControlPlace, StorePlace},
    types::LogFilter,
};

section! {
    /// The node itself. These keys stand at the beginning of the file, before any section.
    ja "ノード全体の設定。これらのキーは、ファイルの先頭、最初のセクションより前に書きます。"
    Settings in "" {
        /// The address and port the node listens on. `0.0.0.0:7777` listens on every IPv4 address, `[::]:7777` on every
        /// address.
        ja "待ち受けるアドレスとポート。`0.0.0.0:7777` はすべての IPv4 アドレス、`[::]:7777` はすべてのアドレスで\
            待ち受けます。"
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7777)), needs restart;
        /// The URL that clients connect to. Behind a reverse proxy it must be set, or authentication (NIP-42) and
        /// vanish requests (NIP-62) are not recognised. If it is not set: `ws://` and the listening address.
        ja "クライアントが接続する URL。リバースプロキシの後ろでは必ず設定してください。設定しないと、認証（NIP-42）と\
            消去要求（NIP-62）を認識できません。未設定の場合は `ws://` と待ち受けアドレスになります。"
        public_url: Option<WebSocketUrl> = None, such as "wss://relay.example.com";
        /// The directory for everything the node keeps beside events, and for events too unless `store` is set. The
        /// node creates it if it is missing. Each node has its own, even if several share a database.
        ja "ノードのデータを置くディレクトリ。`store` を設定しなければイベントもここに保存します。無ければ作成します。\
            データベースを共有する場合も、ノードごとに別のディレクトリが必要です。"
        data: PathBuf = PathBuf::from("data"), needs restart;
        /// Where events are stored: `lmdb:` and a directory on a local disk, or the URL of a Postgres database, such as
        /// `postgres://kukuri@db.example.com/kukuri`, which any number of nodes may share. The password may be in the
        /// URL (it is never shown), in `PGPASSWORD` or in `~/.pgpass`. If it is not set: `store` in the data directory.
        ja "イベントの保存先。`lmdb:` とローカルディスク上のディレクトリ、または \
            `postgres://kukuri@db.example.com/kukuri` のような Postgres データベースの URL を指定します。データベースは\
            複数のノードで共有できます。パスワードは URL（表示されることはありません）、`PGPASSWORD`、`~/.pgpass` の\
            いずれかに書けます。未設定の場合はデータディレクトリ内の `store` です。"
        store: Option<StorePlace> = None, such as "lmdb:/var/lib/kukuri/store", needs restart;
        /// Where accounts, policies, requests and decisions are kept: `sqlite:` and a file on a local disk, or the URL of a
        /// Postgres database, which several nodes may share. If it is not set: the database of `store` if that is Postgres, else
        /// `control.db` in the data directory.
        ja "アカウント、ポリシー、申請、決定の保存先。`sqlite:` とローカルディスク上のファイル、または Postgres データベースの URL \
            を指定します。Postgres は複数のノードで共有できます。未設定の場合、`store` が Postgres ならそのデータベース、そうでなければ\
            データディレクトリ内の `control.db` です。"
        control: Option<ControlPlace> = None, such as "sqlite:/var/lib/kukuri/control.db", needs restart;
        /// Whether the limits in `[rates]` apply: `on` or `off`. Turn them off for load tests only.
        ja "`[rates]` の制限を適用するかどうか（`on` または `off`）。`off` は負荷試験のときだけ使ってください。"
        rate_limits: Switch = Switch::On;
        /// What a deletion request does to stored events. `soft`: they stay, hidden, until retention removes them.
        /// `physical`: they are removed at once.
        ja "削除要求を受けたイベントの扱い。`soft`：非表示にし、保存期間が過ぎるまで残します。`physical`：すぐに削除します。"
        deletion: Foreign<DeletionMode> = Foreign(DeletionMode::default()), needs restart;
        /// How much is logged: `error`, `warn`, `info`, `debug` or `trace`, also by module, as in
        /// `info,kukuri_relay=debug`.
        ja "ログの詳しさ：`error`、`warn`、`info`、`debug`、`trace`。`info,kukuri_relay=debug` のようにモジュールごとにも\
            指定できます。"
        log: LogFilter = LogFilter::default(), needs restart;
    }
    sections {
        relay: Relay,
        operator: Operator,
        shutdown: Shutdown,
        bootstrap: Bootstrap,
        topics: Topics,
        subscriptions: Subscriptions,
        auth: Auth,
        limits: Limits,
        rates: Rates,
        deny: Deny,
        proxy: Proxy,
        metrics: Metrics,
        retention: Retention,
        clock: Clock,
        capacity: Capacity,
        disk: Disk,
        backlog: Backlog,
        postgres: Postgres,
        search: Search,
        gossip: Gossip,
    }
}

impl Settings {
    /// `store`, or its default, which depends on `data`.
    pub(crate) fn store_place(&self) -> StorePlace {
        self.store.clone().unwrap_or_else(|| StorePlace::Lmdb(self.data.join("store")))
    }

    /// `control`, or its default, which depends on `store` and `data`.
    pub(crate) fn control_place(&self) -> ControlPlace {
        self.control_place_beside(&self.store_place())
    }

    /// The same if `store` were this one.
    pub(crate) fn control_place_beside(&self, store: &StorePlace) -> ControlPlace {
        self.control.clone().unwrap_or_else(|| match store {
            StorePlace::Postgres(url) => ControlPlace::Postgres(url.clone()),
            StorePlace::Lmdb(_) => ControlPlace::Sqlite(self.data.join("control.db")),
        })
    }
}
