//! `[retention]`

use kukuri_config::section;
use kukuri_domain::retention::{Keep, Retention as Rules};

use super::Settings;
use crate::config::Foreign;

section! {
    /// How long events and what is remembered of them are kept, from their arrival: a time such as `30d`, or `forever`.
    /// Topics may have their own times. Values that would let purged or deleted events come back are refused.
    ja "イベントとその記録を、届いてからどれだけ残すか。`30d` のような期間、または `forever` で指定します。トピックごとに\
        変えることもできます。削除済みのイベントが再び受け付けられてしまう組み合わせはエラーになります。"
    Retention in "retention." {
        /// Regular events.
        ja "通常のイベント。"
        regular: Foreign<Keep> = Foreign(Rules::default().regular);
        /// The current versions of replaceable and addressable events.
        ja "置換可能（replaceable、addressable）イベントの現在の版。"
        current: Foreign<Keep> = Foreign(Rules::default().current);
        /// Versions that were replaced.
        ja "置き換えられた古い版。"
        replaced: Foreign<Keep> = Foreign(Rules::default().replaced);
        /// Deletion and vanish requests and what is remembered of them. Not shorter than the longest time for events.
        ja "削除要求・消去要求とその記録。イベントの最も長い保存期間より短くはできません。"
        requests: Foreign<Keep> = Foreign(Rules::default().requests);
        /// The ids of events that are gone, so that they are not accepted again. Not shorter than the longest time for
        /// events that is not `forever`.
        ja "削除されたイベントの ID。再び受け付けないために残します。イベントの保存期間のうち、`forever` 以外で最も長いもの\
            より短くはできません。"
        dedupe: Foreign<Keep> = Foreign(Rules::default().dedupe);
        /// The log of changes (outbox) that search and other services follow.
        ja "検索などのサービスが追う変更ログ（outbox）。"
        outbox: Foreign<Keep> = Foreign(Rules::default().outbox);
    }
}

impl Settings {
    pub(crate) fn retention(&self) -> Rules {
        let retention = &self.retention;
        Rules {
            regular: retention.regular.0,
            current: retention.current.0,
            replaced: retention.replaced.0,
            requests: retention.requests.0,
            dedupe: retention.dedupe.0,
            outbox: retention.outbox.0,
        }
    }
}
