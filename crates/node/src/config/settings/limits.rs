//! `[limits]`

use std::time::Duration;

use kukuri_config::{ByteSize, section};
use kukuri_domain::limits::Limits as EventLimits;
use kukuri_engine::config::RequestLimits;

section! {
    /// How large events and requests may be, and how much one connection may use. Sizes are bytes, or text such as
    /// `"128KiB"`.
    ja "イベントやリクエストの大きさと、1 つの接続が使える量の上限。サイズはバイト数、または `\"128KiB\"` のように書きます。"
    Limits in "limits." {
        /// The size of an event's JSON as this node writes it.
        ja "イベントの JSON のサイズ（このノードが書き出した形で測ります）。"
        event_bytes: ByteSize = EventLimits::default().event_bytes.into(), at least ByteSize(1);
        /// The tags of an event.
        ja "1 つのイベントのタグの数。"
        tag_count: usize = EventLimits::default().tag_count;
        /// The size of the text in all tags of an event together.
        ja "1 つのイベントの全タグの文字列を合わせたサイズ。"
        tags_bytes: ByteSize = EventLimits::default().tags_bytes.into();
        /// The size of the text in one tag.
        ja "1 つのタグの文字列のサイズ。"
        tag_bytes: ByteSize = EventLimits::default().tag_bytes.into();
        /// The topics an event may belong to.
        ja "1 つのイベントが属せるトピックの数。"
        topics_per_event: usize = EventLimits::default().topics_per_event, at least 1;
        /// The size of an event's content.
        ja "イベントの content のサイズ。"
        content_bytes: ByteSize = EventLimits::default().content_bytes.into();
        /// How far an event's `created_at` may lie ahead of this node's clock.
        ja "イベントの `created_at` が、このノードの時計よりどれだけ先でもよいか。"
        created_at_ahead: Duration = EventLimits::default().created_at_ahead;
        /// The size of one WebSocket message.
        ja "WebSocket メッセージ 1 件のサイズ。"
        message_bytes: ByteSize = RequestLimits::default().message_bytes.into(), at least ByteSize(1 << 10);
        /// The filters in one request.
        ja "1 つのリクエストに含められるフィルターの数。"
        filters: usize = RequestLimits::default().filters, at least 1;
        /// The values in all lists of one filter.
        ja "1 つのフィルターの全リストに含められる値の数。"
        filter_values: usize = RequestLimits::default().filter_values, at least 1;
        /// The subscriptions one connection may have open.
        ja "1 つの接続で同時に開ける購読の数。"
        subscriptions: usize = RequestLimits::default().subscriptions, at least 1;
        /// The stored events returned for one filter. A larger `limit` in a request is reduced to this.
        ja "1 つのフィルターに対して返す保存済みイベントの数。リクエストの `limit` がこれより大きければ、この値に切り詰めます。"
        limit: usize = RequestLimits::default().limit, at least 1;
        /// The size of the stored events returned for one request. Events beyond it are left out, as by a limit.
        ja "1 つのリクエストに対して返す保存済みイベントの合計サイズ。超えた分は `limit` のときと同じく省きます。"
        answer_bytes: ByteSize = RequestLimits::default().answer_bytes.into(), at least ByteSize(128 << 10);
        /// The rows that one query (REQ, COUNT, NEG-OPEN) may look at, over all its filters. A large event that has to be read counts
        /// once more for every 4 KiB. Then a REQ gets the newest part of its answer, or is closed; a COUNT or NEG-OPEN is refused as
        /// too costly. On Postgres it bounds the rows that a COUNT finds.
        ja "1 つの問い合わせ（REQ、COUNT、NEG-OPEN）が、全フィルターを合わせて調べられる行数。読む必要のある大きなイベントは 4 KiB ごとに 1 行を加えて数えます。超えると、REQ には新しいほうの一部を返すか CLOSED を返し、COUNT と NEG-OPEN は重すぎるとして拒否します。Postgres では COUNT が見つける行数を制限します。"
        query_rows: usize = RequestLimits::default().query_rows, at least 1_000;
        /// The time that one query may take, over all its filters, including the wait for its turn.
        ja "1 つの問い合わせにかけられる時間。全フィルターの合計で、順番待ちの時間も含みます。"
        query_time: Duration = RequestLimits::default().query_time,
            at least Duration::from_millis(100), at most Duration::from_mins(60);
        /// The costly queries, and the searches, that the node runs at a time: this many of each. Further ones wait for their
        /// turn; one IP address gets half of them, while `rate_limits` is `on`. Queries of a few rows never wait. If it is not set:
        /// one for each processor core.
        ja "同時に実行する、重い問い合わせと検索それぞれの数。超えた分は順番を待ちます。1 つの IP アドレスが使えるのは半分までです（`rate_limits` が `on` の間だけ適用）。少しの行で済む問い合わせは待ちません。未設定の場合は CPU のコア数です。"
        costly_queries: Option<usize> = None, such as 4;
        /// The filters with a `search` in one REQ.
        ja "1 つの REQ に含められる、`search` を持つフィルターの数。"
        search_filters: usize = RequestLimits::default().search_filters, at least 1;
        /// The memory for the answers to all clients together, over WebSocket and HTTP, from reading their events until they are
        /// sent, and for live events that wait to be sent. One IP address may hold a quarter of what is free, while `rate_limits`
        /// is `on`. A request that finds none is refused after two seconds; a slow reader of live events is disconnected.
        ja "全クライアントへの応答（WebSocket と HTTP）を読み出してから送り終えるまで、また送信待ちのライブイベントを保持するメモリの合計。`rate_limits` が `on` の間、1 つの IP アドレスは空きの 4 分の 1 まで使えます。空きがないリクエストは 2 秒後に拒否し、ライブイベントの受信が遅い接続は切断します。"
        answer_memory: ByteSize = RequestLimits::default().answer_memory.into(), at least ByteSize(64 << 20);
        /// The events of one connection that may wait for their OK. No further message is read until one is answered.
        ja "1 つの接続で OK を待てるイベントの数。達すると、応答するまで次のメッセージを読みません。"
        in_flight: usize = RequestLimits::default().in_flight, at least 1;
        /// A connection that is silent for this long is pinged, and closed if it stays silent for as long again.
        ja "この時間何も届かない接続に ping を送り、さらに同じ時間応答がなければ切断します。"
        idle: Duration = RequestLimits::default().idle, at least Duration::from_secs(1);
        /// The connections of all clients together.
        ja "全クライアントを合わせた接続数。"
        connections: usize = RequestLimits::default().connections, at least 1;
        /// The live filters of all connections of one IP address together, while `rate_limits` is `on`. A filter counts once for
        /// every 8 values in its lists, or every 8 pairs of a value and a kind. An IPv6 address counts in its /64; a /56 may have
        /// 4 times as many, a /48 16 times.
        ja "1 つの IP アドレスの全接続を合わせた、購読中のフィルターの数（`rate_limits` が `on` の間だけ適用）。リスト内の値、または値と kind の組は、8 個ごとに 1 件と数えます。IPv6 は /64 単位で数え、/56 には 4 倍、/48 には 16 倍まで認めます。"
        live_filters_per_address: usize = RequestLimits::default().live_filters_per_address, at least 1;
        /// The live filters of all clients of the node together, counted in the same way.
        ja "ノードの全クライアントを合わせた、購読中のフィルターの数。数え方は同じです。"
        live_filters: usize = RequestLimits::default().live_filters, at least 1;
        /// The NIP-77 sessions one connection may have open. 0 turns NIP-77 off.
        ja "1 つの接続で同時に開ける NIP-77 セッションの数。0 なら NIP-77 を無効にします。"
        sync_sessions: usize = RequestLimits::default().sync_sessions;
        /// The events one NIP-77 session may cover.
        ja "1 つの NIP-77 セッションで扱えるイベントの数。"
        sync_events: usize = RequestLimits::default().sync_events, at least 1;
    }
}

impl Limits {
    pub(crate) fn of_events(&self) -> EventLimits {
        EventLimits {
            event_bytes: self.event_bytes.as_usize(),
            tag_count: self.tag_count,
            tags_bytes: self.tags_bytes.as_usize(),
            tag_bytes: self.tag_bytes.as_usize(),
            topics_per_event: self.topics_per_event,
            content_bytes: self.content_bytes.as_usize(),
            created_at_ahead: self.created_at_ahead,
        }
    }

    pub(crate) fn of_requests(&self) -> RequestLimits {
        RequestLimits {
            connections: self.connections,
            message_bytes: self.message_bytes.as_usize(),
            filters: self.filters,
            filter_values: self.filter_values,
            subscriptions: self.subscriptions,
            limit: self.limit,
            answer_bytes: self.answer_bytes.as_usize(),
            query_rows: self.query_rows,
            query_time: self.query_time,
            costly_queries: self.costly_queries,
            search_filters: self.search_filters,
            answer_memory: self.answer_memory.as_usize(),
            in_flight: self.in_flight,
            idle: self.idle,
            live_filters_per_address: self.live_filters_per_address,
            live_filters: self.live_filters,
            sync_sessions: self.sync_sessions,
            sync_events: self.sync_events,
        }
    }
}
