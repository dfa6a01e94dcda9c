//! `[topics]`

use std::{num::NonZeroU32, time::Duration};

use kukuri_config::section;
use kukuri_domain::topic::{TopicError, TopicPatterns, TopicRules, TopicsMode};
use kukuri_engine::config::TopicIntake;

use super::Settings;
use crate::config::{Foreign, types::TopicPattern};

section! {
    /// Which topics there are, and who may open them.
    ja "トピックの扱いと、トピックを開ける人。"
    Topics in "topics." {
        /// `required`: events and filters must name topics. `global`: events and filters without a topic belong to
        /// `kukuri:global`, so that clients without topic support work.
        ja "`required`：イベントとフィルターにはトピックの指定が必要です。`global`：トピックの指定がないものは \
            `kukuri:global` に属するため、トピックに対応していないクライアントも使えます。"
        mode: Foreign<TopicsMode> = Foreign(TopicsMode::default());
        /// The network id, part of the hash of a topic's name. Nodes of one network have the same id; under another id
        /// every name is another topic.
        ja "トピック名のハッシュに含めるネットワーク ID。同じネットワークのノードでは同じ値にします。値が違えば、同じ名前でも\
            別のトピックになります。"
        network: String = "kukuri:main:".to_owned(), needs restart;
        /// Further ids that are topics: exact ids, or all under a prefix, as in `kukuri:room:*`.
        ja "追加でトピックとみなす ID。ID そのもの、または `kukuri:room:*` のような接頭辞で指定します。"
        reserved: Vec<TopicPattern> = Vec::new();
        /// Topics that members can't ask for: exact ids, or all under a prefix, as in `kukuri:room:*`.
        ja "メンバーが申請できないトピック。ID そのもの、または `kukuri:room:*` のような接頭辞で指定します。"
        forbidden: Vec<TopicPattern> = Vec::new(), needs restart;
        /// Whether the first event in a topic opens it. `false`: only the operator opens topics.
        ja "最初のイベントでトピックを自動的に開くかどうか。`false` なら、トピックを開けるのは運営者だけです。"
        open: bool = true;
        /// The most topics that are open at a time.
        ja "同時に開いておけるトピックの最大数。"
        max: usize = TopicIntake::DEFAULT_MAX;
        /// A topic that was opened by an event is closed again when it has had no new one for this long.
        ja "イベントで開いたトピックは、この期間新しいイベントがなければ閉じます。"
        idle: Duration = TopicIntake::DEFAULT_IDLE, at least Duration::from_mins(1);
        /// The topics that one IP address, or one public key, may open in an hour, and the unknown topics that events of one
        /// peer may name (20, if topics are not open).
        ja "1 つの IP アドレスまたは公開鍵が 1 時間に開けるトピックの数。1 つのピアのイベントが 1 時間に持ち込める未知のトピックの数も同じです（自動で開かない設定では 20）。"
        opened_per_hour: u32 = TopicIntake::DEFAULT_OPENED_PER_HOUR.get();
    }
}

impl Topics {
    pub(crate) fn intake(&self) -> TopicIntake {
        match NonZeroU32::new(self.opened_per_hour) {
            Some(opened_per_hour) if self.open => TopicIntake::Open { max: self.max, idle: self.idle, opened_per_hour },
            _ => TopicIntake::Closed,
        }
    }
}

impl Topics {
    /// Topics that members can't ask for (S-2).
    pub(crate) fn forbidden(&self) -> TopicPatterns {
        // They were checked when the configuration was loaded.
        TopicPatterns::new(&self.forbidden).unwrap_or_default()
    }
}

impl Settings {
    /// Fails only on a reserved topic, which was checked when the configuration was loaded.
    pub(crate) fn topic_rules(&self) -> Result<TopicRules, TopicError> {
        TopicRules::new(self.topics.mode.0, &self.topics.reserved)
    }
}
