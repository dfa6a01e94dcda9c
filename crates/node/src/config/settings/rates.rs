//! `[rates]`

use kukuri_config::section;
use kukuri_engine::config::{Rate, Rates as RateLimits};

section! {
    /// Rate limits, counted for each IP address and, once a client has authenticated, for each public key. They apply
    /// while `rate_limits` is `on`.
    ja "レート制限。IP アドレスごと、認証後は公開鍵ごとに数えます。`rate_limits` が `on` の間だけ適用します。"
    Rates in "rates." {
        /// The connections one IP address may have open.
        ja "1 つの IP アドレスが同時に開ける接続の数。"
        connections_per_ip: usize = RateLimits::default().connections_per_ip, at least 1;
        /// The connections one IP address may open in a minute.
        ja "1 つの IP アドレスが 1 分間に開ける接続の数。"
        new_connections_per_minute: u32 = RateLimits::default().new_connections.per_minute.get(), at least 1;
        /// The events accepted in a minute. A large event counts once more for every 16 KiB.
        ja "1 分間に受け付けるイベントの数。大きなイベントは 16 KiB ごとに 1 件多く数えます。"
        events_per_minute: u32 = RateLimits::default().events.per_minute.get(), at least 1;
        /// The events accepted at once, after a pause.
        ja "しばらく間が空いた後に、一度に受け付けるイベントの数。"
        events_burst: u32 = RateLimits::default().events.burst.get(), at least 1;
        /// The requests answered in a minute: REQ, COUNT and NEG messages, and messages that can't be read. A large one
        /// counts once more for every 16 KiB.
        ja "1 分間に応答するリクエスト（REQ、COUNT、NEG と、読み取れないメッセージ）の数。大きなものは 16 KiB ごとに 1 件多く数えます。"
        requests_per_minute: u32 = RateLimits::default().requests.per_minute.get(), at least 1;
        /// The requests answered at once, after a pause.
        ja "しばらく間が空いた後に、一度に応答するリクエストの数。"
        requests_burst: u32 = RateLimits::default().requests.burst.get(), at least 1;
        /// The costly requests answered in a minute: REQ with `until`, COUNT and NEG-OPEN. They count as requests as well.
        ja "1 分間に応答する、負荷の高いリクエスト（`until` 付きの REQ、COUNT、NEG-OPEN）の数。通常のリクエストとしても数えます。"
        backfill_per_minute: u32 = RateLimits::default().backfill.per_minute.get(), at least 1;
        /// The costly requests answered at once, after a pause.
        ja "しばらく間が空いた後に、一度に応答する負荷の高いリクエストの数。"
        backfill_burst: u32 = RateLimits::default().backfill.burst.get(), at least 1;
        /// The deletion and vanish requests (kinds 5 and 62) accepted in a minute, also counted for each author. A request
        /// counts once more for every 50 targets.
        ja "1 分間に受け付ける削除要求・消去要求（kind 5 と 62）の数。作者ごとにも数えます。対象 50 件ごとに 1 件多く数えます。"
        deletions_per_minute: u32 = RateLimits::default().deletions.per_minute.get(), at least 1;
        /// The deletion and vanish requests accepted at once, after a pause.
        ja "しばらく間が空いた後に、一度に受け付ける削除要求・消去要求の数。"
        deletions_burst: u32 = RateLimits::default().deletions.burst.get(), at least 1;
        /// The new replaceable and addressable events accepted in a minute, also counted for each author. New versions of
        /// an event that the node has received lately are not counted here.
        ja "1 分間に受け付ける、新しい置換可能（replaceable、addressable）イベントの数。作者ごとにも数えます。最近受け取った\
            イベントの新しい版は数えません。"
        new_keys_per_minute: u32 = RateLimits::default().new_keys.per_minute.get(), at least 1;
        /// The new replaceable and addressable events accepted at once, after a pause.
        ja "しばらく間が空いた後に、一度に受け付ける新しい置換可能イベントの数。"
        new_keys_burst: u32 = RateLimits::default().new_keys.burst.get(), at least 1;
        /// The sign-ins over HTTP (challenges, their answers, invite codes) that one IP address may try in a minute.
        ja "1 つの IP アドレスが 1 分間に試せる HTTP のサインイン（チャレンジ、その応答、招待コード）の数。"
        sign_ins_per_minute: u32 = RateLimits::default().sign_ins.per_minute.get(), at least 1;
    }
}

impl Rates {
    pub(crate) fn limits(&self) -> RateLimits {
        RateLimits {
            connections_per_ip: self.connections_per_ip,
            new_connections: Rate::new(self.new_connections_per_minute, self.new_connections_per_minute),
            events: Rate::new(self.events_per_minute, self.events_burst),
            requests: Rate::new(self.requests_per_minute, self.requests_burst),
            backfill: Rate::new(self.backfill_per_minute, self.backfill_burst),
            deletions: Rate::new(self.deletions_per_minute, self.deletions_burst),
            new_keys: Rate::new(self.new_keys_per_minute, self.new_keys_burst),
            sign_ins: Rate::new(self.sign_ins_per_minute, self.sign_ins_per_minute),
        }
    }
}
