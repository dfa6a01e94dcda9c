//! `[auth]`

use std::time::Duration;

use kukuri_config::{OffsetDateTime, section};
use kukuri_domain::Millis;

use crate::config::AuthMode;

section! {
    /// Whether clients must authenticate (NIP-42).
    ja "クライアントの認証（NIP-42）。"
    Auth in "auth." {
        /// `required`: only authenticated clients may read and write. `off`: no client has to authenticate.
        ja "`required`：認証したクライアントだけが読み書きできます。`off`：認証を求めません。"
        mode: AuthMode = AuthMode::Off;
        /// When `required` takes effect: a time with its offset from UTC (RFC 3339), or Unix seconds. If it is not
        /// set: at once.
        ja "`required` が有効になる時刻。UTC からの時差を付けた日時（RFC 3339）、または Unix 秒で指定します。未設定ならすぐに\
            有効になります。"
        enforce_at: Option<OffsetDateTime> = None, such as "2030-01-31T12:00:00Z";
        /// How many seconds clients have to authenticate if they are connected when `required` takes effect.
        ja "`required` が有効になった時点で接続中のクライアントに与える、認証までの猶予（秒）。"
        grace_seconds: u64 = 900, at most 31_536_000;
        /// How many seconds a new client has to authenticate before its connection is closed.
        ja "新しいクライアントが認証するまでの制限時間（秒）。過ぎると切断します。"
        ws_auth_timeout_seconds: u64 = 10, at least 1, at most 3_600;
    }
}

impl Auth {
    /// `now`: the default of `enforce_at`.
    pub(crate) fn rules(&self, now: Millis) -> kukuri_engine::config::Auth {
        match self.mode {
            AuthMode::Off => kukuri_engine::config::Auth::Off,
            AuthMode::Required => kukuri_engine::config::Auth::Required {
                enforce_at: self.enforce_at.map_or(now, |time| Millis::from_secs(time.unix_timestamp().unsigned_abs())),
                grace: Duration::from_secs(self.grace_seconds),
                timeout: Duration::from_secs(self.ws_auth_timeout_seconds),
            },
        }
    }
}
