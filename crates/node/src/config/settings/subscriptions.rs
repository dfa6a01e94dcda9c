//! `[subscriptions]`

use kukuri_config::{HttpUrl, section};
use kukuri_control::request::RequestLimits;

section! {
    /// Topics that members ask for and subscribe to.
    ja "メンバーが申請し、購読するトピック。"
    Subscriptions in "subscriptions." {
        /// Whether the node stops taking in a topic when the last member has ended its subscription. Topics that the operator
        /// enabled, and those that were opened by use, are not stopped.
        ja "最後のメンバーが購読をやめたトピックの取り込みを止めるかどうか。運営者が有効にしたトピックと、投稿によって開いたトピックは\
            止めません。"
        stop_unused: bool = true, needs restart;
        /// The most requests of one person that wait for a decision.
        ja "1 人が同時に持てる、承認待ちの申請の数。"
        pending_requests: u64 = 5, needs restart;
        /// The most topics that the node takes in for its members.
        ja "ノードがメンバーのために取り込むトピックの最大数。"
        max_topics: u64 = 100, needs restart;
        /// The URL of a page about larger plans. Answers that refuse a request because its plan has no more name it.
        ja "より大きなプランを案内するページの URL。プランの上限で断る応答に含めます。"
        upgrade_url: Option<HttpUrl> = None, such as "https://example.com/plans", needs restart;
    }
}

impl Subscriptions {
    pub(crate) fn limits(&self) -> RequestLimits {
        RequestLimits { pending_per_person: self.pending_requests, topics: self.max_topics }
    }
}
