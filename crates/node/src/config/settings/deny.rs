//! `[deny]`

use std::ops::RangeInclusive;

use ipnet::IpNet;
use kukuri_config::section;
use kukuri_domain::PublicKey;

use crate::config::Foreign;

section! {
    /// Deny lists. They apply to new events and connections; stored events stay.
    ja "拒否リスト。これから届くイベントと接続に適用します。保存済みのイベントはそのまま残ります。"
    Deny in "deny." {
        /// Authors whose events are refused, as public keys of 64 lowercase hex digits.
        ja "イベントを拒否する作者の公開鍵（小文字の 16 進数 64 桁）。"
        pubkeys: Vec<Foreign<PublicKey>> = Vec::new();
        /// Kinds that are refused: numbers, or ranges such as `"20000-29999"`.
        ja "拒否する kind。番号、または `\"20000-29999\"` のような範囲で指定します。"
        kinds: Vec<RangeInclusive<u16>> = Vec::new();
        /// IP addresses and networks (CIDR) that may not connect.
        ja "接続を拒否する IP アドレスとネットワーク（CIDR）。"
        ips: Vec<IpNet> = Vec::new();
    }
}

impl Deny {
    pub(crate) fn lists(&self) -> kukuri_engine::config::Deny {
        kukuri_engine::config::Deny {
            pubkeys: self.pubkeys.iter().map(|key| key.0).collect(),
            kinds: self.kinds.clone(),
            ips: self.ips.clone(),
        }
    }
}
