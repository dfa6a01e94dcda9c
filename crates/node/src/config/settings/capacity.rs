//! `[capacity]`

use kukuri_config::{ByteSize, Percent, section};
use kukuri_domain::capacity::{Capacity as MaxUsage, PermanentShare, Thresholds};
use kukuri_engine::disk::file_system_bytes;
use kukuri_store::StoreRules;

use super::Settings;
use crate::config::StorePlace;

section! {
    /// How much may be stored, and what happens near that bound, in percent of `max_events` or `max_bytes`,
    /// whichever is nearer. `live_only`, `shedding` and `purging` must ascend.
    ja "保存できる量の上限と、上限に近づいたときの動作。`max_events` と `max_bytes` のうち上限に近い方に対する割合（%）で\
        指定します。`live_only`、`shedding`、`purging` はこの順に大きくします。"
    Capacity in "capacity." {
        /// The most stored events, hidden ones included. If it is not set: no bound.
        ja "保存するイベントの最大数（非表示のものを含みます）。未設定なら無制限です。"
        max_events: Option<u64> = None, such as 10_000_000, needs restart;
        /// The most bytes of stored events, as JSON. If it is not set: no bound.
        ja "保存するイベントの最大バイト数（JSON として）。未設定なら無制限です。"
        max_bytes: Option<ByteSize> = None, such as "20GiB", needs restart;
        /// What is never purged to make room (deletion and vanish requests with what they leave, and the current versions of
        /// replaceable and addressable events) may fill this many percent of the capacity, of the node and of each topic.
        /// Above it requests and new replaceable or addressable events are accepted only from authors with another event
        /// here, and nothing else is purged for them. Without `max_bytes` it is of the file system (embedded store only).
        ja "容量不足でも削除しないもの（削除要求・消去要求とそれらが残す記録、置換可能（replaceable、addressable）イベントの\
            最新版）が使える割合（%）。ノード全体と各トピックの容量に対する割合です。これを超えると、削除要求・消去要求と、\
            新しい置換可能イベントは、このノードに他のイベントがある作者からのみ受け付け、そのために\
            他のイベントを削除することはありません。`max_bytes` が未設定なら、ファイルシステムに対する割合になります\
            （組み込みストアのみ）。"
        permanent_share: Percent = Percent(PermanentShare::default().percent), at least Percent(1), needs restart;
        /// From this many percent on, history from imports and other nodes is refused.
        ja "この割合に達すると、インポートや他ノードからの過去のイベントを拒否します。"
        live_only: Percent = Percent(Thresholds::default().live_only), needs restart;
        /// From this many percent on, topics of the lowest priority are refused too.
        ja "この割合に達すると、優先度が最も低いトピックのイベントも拒否します。"
        shedding: Percent = Percent(Thresholds::default().shedding), needs restart;
        /// From this many percent on, the oldest events are purged.
        ja "この割合に達すると、古いイベントから削除します。"
        purging: Percent = Percent(Thresholds::default().purging), needs restart;
        /// A stage ends this many points below where it began.
        ja "各段階は、始まった割合よりこのポイント数だけ下がると終わります。"
        leave_below: Percent = Percent(Thresholds::default().leave_below), needs restart;
        /// A purge goes down to this many percent.
        ja "削除は、この割合に下がるまで続けます。"
        purge_to: Percent = Percent(Thresholds::default().purge_to), at least Percent(1), needs restart;
    }
}

impl Settings {
    pub(crate) fn store_rules(&self) -> StoreRules {
        let capacity = &self.capacity;
        StoreRules {
            deletion: self.deletion.0,
            capacity: self.max_usage(),
            thresholds: Thresholds {
                live_only: capacity.live_only.0,
                shedding: capacity.shedding.0,
                purging: capacity.purging.0,
                leave_below: capacity.leave_below.0,
                purge_to: capacity.purge_to.0,
            },
            permanent: self.permanent_share(),
            clock: self.clock.rules(),
        }
    }

    pub(crate) fn max_usage(&self) -> MaxUsage {
        let Capacity { max_events, max_bytes, .. } = &self.capacity;
        MaxUsage { max_events: *max_events, max_bytes: max_bytes.map(|size| size.0) }
    }

    pub(crate) fn permanent_share(&self) -> PermanentShare {
        // The disk of a database may be on another machine.
        let file_system = match self.store_place() {
            StorePlace::Lmdb(path) => file_system_bytes(&path),
            StorePlace::Postgres(_) => None,
        };
        PermanentShare { percent: self.capacity.permanent_share.0, file_system }
    }
}
