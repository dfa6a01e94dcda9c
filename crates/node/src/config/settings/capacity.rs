//! `[capacity]`

use kukuri_config::{ByteSize, Percent, section};
use kukuri_domain::capacity::{Capacity as MaxUsage, Thresholds};
use kukuri_store::StoreRules;

use super::Settings;

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
            capacity: MaxUsage { max_events: capacity.max_events, max_bytes: capacity.max_bytes.map(|size| size.0) },
            thresholds: Thresholds {
                live_only: capacity.live_only.0,
                shedding: capacity.shedding.0,
                purging: capacity.purging.0,
                leave_below: capacity.leave_below.0,
                purge_to: capacity.purge_to.0,
            },
            clock: self.clock.rules(),
        }
    }
}
