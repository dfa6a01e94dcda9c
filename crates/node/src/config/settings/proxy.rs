//! `[proxy]`

use std::net::Ipv6Addr;

use axum::http::HeaderName;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kukuri_config::section;

use crate::config::Foreign;

section! {
    /// How the node learns a client's address behind a reverse proxy.
    ja "リバースプロキシの後ろで、クライアントのアドレスを知る方法。"
    Proxy in "proxy." {
        /// The HTTP header in which the proxy writes the client's address. If it is not set, the address of the
        /// connection counts.
        ja "プロキシがクライアントのアドレスを書き込む HTTP ヘッダー。未設定なら接続元のアドレスを使います。"
        header: Option<Foreign<HeaderName>> = None, such as "x-forwarded-for";
        /// The trusted proxies: IP addresses and networks (CIDR). From other addresses the header is ignored.
        ja "信頼するプロキシの IP アドレスとネットワーク（CIDR）。それ以外から届いたヘッダーは無視します。"
        trusted: Vec<IpNet> = loopback();
    }
}

impl Proxy {
    /// `None`: no proxy is trusted.
    pub(crate) fn trusted_proxy(&self) -> Option<kukuri_http::Proxy> {
        let header = self.header.as_ref()?.0.as_str().to_owned();
        Some(kukuri_http::Proxy { header, trusted: self.trusted.clone() })
    }
}

fn loopback() -> Vec<IpNet> {
    let v4 = Ipv4Net::new_assert([127, 0, 0, 0].into(), 8);
    let v6 = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);
    vec![v4.into(), v6.into()]
}
