//! `[shutdown]`

use kukuri_bootstrap::ShutdownStatus;
use kukuri_config::{HttpUrl, OffsetDateTime, section};

use crate::config::Foreign;

section! {
    /// The announcement that the node will be shut down, in `/.well-known/kukuri/community-node.json`. It announces only: the node goes
    /// on as before.
    ja "ノード終了のお知らせ。`/.well-known/kukuri/community-node.json` に載ります。告知だけで、ノードの動作は変わりません。"
    Shutdown in "shutdown." {
        /// `active`: the node goes on. `winding_down`: it will be shut down. `retired`: it takes in nothing new, and will be gone.
        ja "`active`：運用中。`winding_down`：終了予定。`retired`：新規の受け付けを終え、まもなく停止。"
        status: Foreign<ShutdownStatus> = Foreign(ShutdownStatus::default());
        /// When it ends: a time with its offset from UTC (RFC 3339), or Unix seconds.
        ja "終了日時。UTC からの時差を付けた日時（RFC 3339）、または Unix 秒で指定します。"
        effective_at: Option<OffsetDateTime> = None, such as "2030-01-31T12:00:00Z";
        /// A text for people: why, and what they can do.
        ja "利用者へのお知らせ。理由や、必要な手続きなど。"
        message: Option<String> = None, such as "Thank you for five years.";
        /// URLs of nodes to go to.
        ja "移行先として案内するノードの URL。"
        alternatives: Vec<HttpUrl> = Vec::new();
    }
}

impl Shutdown {
    pub(crate) fn notice(&self) -> kukuri_bootstrap::Shutdown {
        kukuri_bootstrap::Shutdown {
            status: self.status.0,
            effective_at: self.effective_at.map(|time| time.unix_timestamp().unsigned_abs()),
            message: self.message.clone(),
            alternatives: self.alternatives.iter().map(|url| url.as_ref().to_owned()).collect(),
        }
    }
}
