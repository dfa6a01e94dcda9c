//! `[bootstrap]`

use kukuri_bootstrap::ListAccess;
use kukuri_config::{OffsetDateTime, Switch, section};
use kukuri_domain::Millis;

use crate::config::{AuthMode, types::NodeKey};

section! {
    /// How clients find this node and its topics: events that the node signs about itself, and the lists at `/v1/bootstrap`.
    ja "クライアントがこのノードとトピックを見つけるための設定。ノードが自身について署名するイベントと、`/v1/bootstrap` の一覧です。"
    Bootstrap in "bootstrap." {
        /// Whether the node publishes signed events about itself and its topics (kinds 39000 and 39001): `on` or `off`. After a
        /// change to `off` it takes back what it has published.
        ja "ノード自身とトピックについての署名付きイベント（kind 39000、39001）を公開するかどうか（`on` または `off`）。`off` に\
            変更すると、公開済みのものを取り下げます。"
        publish: Switch = Switch::On;
        /// Other nodes that the lists name, by their public keys: hex or npub. Their events have to be here, by gossip or because
        /// somebody publishes or imports them.
        ja "一覧に載せる他のノードの公開鍵（16 進数または npub）。そのノードのイベントが、ゴシップ、投稿、インポートのいずれかでこのノードに\
            届いている必要があります。"
        known: Vec<NodeKey> = Vec::new();
        /// Who may read the lists. `off`: everybody. `required`: people with an account who have accepted the policies; others find
        /// this node only.
        ja "一覧を読める人。`off`：誰でも。`required`：アカウントを持ち、ポリシーに同意した人だけ。それ以外の人に見えるのは、このノードの情報\
            だけです。"
        auth: AuthMode = AuthMode::Off;
        /// When `required` takes effect: a time with its offset from UTC (RFC 3339), or Unix seconds. If it is not
        /// set: at once.
        ja "`required` が有効になる時刻。UTC からの時差を付けた日時（RFC 3339）、または Unix 秒で指定します。未設定ならすぐに\
            有効になります。"
        enforce_at: Option<OffsetDateTime> = None, such as "2030-01-31T12:00:00Z";
    }
}

impl Bootstrap {
    pub(crate) fn access(&self) -> ListAccess {
        let at_once = Millis::default();
        match self.auth {
            AuthMode::Off => ListAccess::Open,
            AuthMode::Required => ListAccess::MembersFrom(
                self.enforce_at.map_or(at_once, |time| Millis::from_secs(time.unix_timestamp().unsigned_abs())),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_for_members_from_the_configured_time_on() {
        // B-5
        let required = Bootstrap { auth: AuthMode::Required, ..Bootstrap::default() };
        let later = Bootstrap { enforce_at: Some(OffsetDateTime::UNIX_EPOCH), ..required.clone() };
        assert_eq!(Bootstrap::default().access(), ListAccess::Open);
        assert!(required.access().is_for_members(Millis(1)) && later.access().is_for_members(Millis(1)));
        let at = OffsetDateTime::from_unix_timestamp(100).unwrap();
        let later = Bootstrap { enforce_at: Some(at), ..required };
        assert!(!later.access().is_for_members(Millis(99_999)) && later.access().is_for_members(Millis(100_000)));
    }
}
