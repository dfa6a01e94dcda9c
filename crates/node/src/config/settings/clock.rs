//! `[clock]`

use std::time::Duration;

use kukuri_config::section;
use kukuri_domain::clock::ClockRules;

section! {
    /// Protection against a wrong system clock. While the clock is far ahead of the last recorded time, nothing is purged
    /// or swept because of its age, and arrival times advance by elapsed time only. The hold outlives restarts. It ends when
    /// the clock returns, when the operator runs `kukuri-node clock confirm`, or after `confirm_after`.
    ja "システム時計の誤りに対する保護。時計が最後に記録した時刻より大きく進んでいる間は、保存期間や有効期限による削除を\
        止め、受信時刻は経過時間の分だけ進めます。この保留は再起動しても続き、時計が元に戻るか、運営者が \
        `kukuri-node clock confirm` を実行するか、`confirm_after` が過ぎると終わります。"
    Clock in "clock." {
        /// A clock further ahead of the last recorded time than this is held. A node that was off for longer is held, too.
        ja "時計が最後に記録した時刻よりこれを超えて進んでいると保留します。これより長く停止していたノードも保留になります。"
        max_jump: Duration = ClockRules::default().max_jump,
            at least Duration::from_mins(1), at most Duration::from_hours(24 * 365), needs restart;
        /// A held clock that has run steadily for this long is trusted.
        ja "保留中の時計がこの期間ずれずに動き続ければ、正しいものとして扱います。"
        confirm_after: Duration = ClockRules::default().confirm_after,
            at least Duration::from_mins(1), at most Duration::from_hours(24 * 365), needs restart;
    }
}

impl Clock {
    pub(crate) fn rules(&self) -> ClockRules {
        ClockRules { max_jump: self.max_jump, confirm_after: self.confirm_after }
    }
}
