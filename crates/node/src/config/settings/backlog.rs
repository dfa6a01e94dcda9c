//! `[backlog]`

use kukuri_config::section;
use kukuri_engine::config::BacklogLimits;

section! {
    /// What happens when a service that follows the outbox, such as the search index, falls behind: in outbox rows that
    /// it has not processed yet. The three must ascend.
    ja "検索インデックスなど、outbox を追うサービスの処理が遅れたときの動作。未処理の行数で指定します。3 つの値はこの順に\
        大きくします。"
    Backlog in "backlog." {
        /// From this many rows on, history from imports and other nodes is refused.
        ja "この行数に達すると、インポートや他ノードからの過去のイベントを拒否します。"
        live_only: u64 = BacklogLimits::default().live_only, at least 1;
        /// From this many rows on, topics of the lowest priority are refused too.
        ja "この行数に達すると、優先度が最も低いトピックのイベントも拒否します。"
        shedding: u64 = BacklogLimits::default().shedding, at least 1;
        /// From this many rows on, an event of a client counts ten times in `[rates]`.
        ja "この行数に達すると、`[rates]` でクライアントのイベント 1 件を 10 件と数えます。"
        cutting: u64 = BacklogLimits::default().cutting, at least 1;
    }
}

impl Backlog {
    pub(crate) fn limits(&self) -> BacklogLimits {
        BacklogLimits { live_only: self.live_only, shedding: self.shedding, cutting: self.cutting }
    }
}
