//! Whether a person is served (S-5): policies of the engine that decide from what the control plane holds in memory.
//!
//! # Layout
//!
//! - [`BanPolicy`]: keys that this node does not serve, whether or not clients have to authenticate.
//! - [`MemberPolicy`]: where clients have to authenticate, a client reads and publishes by a key with an active account that has
//!   accepted the policies in effect and subscribes to the topics.
//! - [`QuotaPolicy`]: where clients have to authenticate, what they may use a day by their plan.
//!
//! A client may have authenticated as several keys. It is served if one of them may do all of what it asks for.

mod ban;
mod member;
mod quota;

pub use ban::BanPolicy;
pub use member::MemberPolicy;
pub use quota::QuotaPolicy;
