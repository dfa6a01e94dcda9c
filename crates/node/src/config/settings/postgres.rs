//! `[postgres]`; `wiring::stores` and `wiring::search_index` pass the values on.

use std::time::Duration;

use kukuri_config::{Switch, section};
use kukuri_store_postgres::PostgresOptions;

section! {
    /// How the node uses a store on Postgres. These keys do not apply to the embedded store.
    ja "Postgres に保存する場合の設定。組み込みストアでは使いません。"
    Postgres in "postgres." {
        /// The most sessions that answer queries at a time. In addition a node has half as many (at least two) for costly queries,
        /// four for publishing and live delivery, four for the HTTP API and services, two that write and one that listens.
        ja "問い合わせに同時に使うセッションの最大数。このほかに、重い問い合わせ用にその半分（2 つ以上）、投稿の受け付けとライブ配信用に 4 つ、HTTP API とサービス用に 4 つ、書き込み用に 2 つ、通知待ち用に 1 つを使います。"
        readers: u32 = PostgresOptions::default().readers, at least 1, at most 1_000, needs restart;
        /// Whether a node that starts creates or migrates the tables: `on` or `off`. `off`: it refuses to start on
        /// older tables until `kukuri-node migrate` has been run.
        ja "起動時にテーブルの作成や更新を行うかどうか（`on` または `off`）。`off` の場合、テーブルが古ければ \
            `kukuri-node migrate` を実行するまで起動しません。"
        migrate: Switch = Switch::On, needs restart;
        /// How long the server may take to answer a query of a client, over all its filters. `limits.query_time` applies as well.
        ja "クライアントの問い合わせ 1 件に対して、サーバーの応答を待つ時間（全フィルターの合計）。`limits.query_time` も適用されます。"
        query_timeout: Duration = PostgresOptions::default().query_timeout,
            at least Duration::from_secs(1), at most Duration::from_mins(60), needs restart;
    }
}
