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
        /// The events of one connection that may wait for their OK. No further message is read until one is answered.
        ja "1 つの接続で OK を待てるイベントの数。達すると、応答するまで次のメッセージを読みません。"
        in_flight: usize = RequestLimits::default().in_flight, at least 1;
        /// A connection that is silent for this long is pinged, and closed if it stays silent for as long again.
        ja "この時間何も届かない接続に ping を送り、さらに同じ時間応答がなければ切断します。"
        idle: Duration = RequestLimits::default().idle, at least Duration::from_secs(1);
        /// The connections of all clients together.
        ja "全クライアントを合わせた接続数。"
        connections: usize = RequestLimits::default().connections, at least 1;
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
            in_flight: self.in_flight,
            idle: self.idle,
            sync_sessions: self.sync_sessions,
            sync_events: self.sync_events,
        }
    }
}
