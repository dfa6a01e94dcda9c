//! `[metrics]`

use std::net::SocketAddr;

use kukuri_config::section;

section! {
    /// Where the node's figures are served.
    ja "ノードのメトリクスの公開先。"
    Metrics in "metrics." {
        /// An address and port of its own for `/metrics` and `/healthz`, such as `127.0.0.1:9100`, for monitors alone. If it is
        /// set, `/metrics` is not served on `listen`. If it is not set, `/metrics` is served on `listen`.
        ja "`/metrics` と `/healthz` を、監視用に別のアドレスとポート（`127.0.0.1:9100` など）で公開します。設定すると、`listen` では \
            `/metrics` を公開しません。未設定の場合は `listen` で公開します。"
        listen: Option<SocketAddr> = None, such as "127.0.0.1:9100", needs restart;
    }
}
