//! `[operator]`

use kukuri_config::section;

section! {
    /// Who runs the node, for `/.well-known/kukuri/community-node.json`. How to reach the operator, and their public key, are in
    /// `[relay]`.
    ja "ノードの運営者。`/.well-known/kukuri/community-node.json` に載ります。連絡先と公開鍵は `[relay]` で設定します。"
    Operator in "operator." {
        /// A person or an organisation.
        ja "運営する個人または団体の名前。"
        name: Option<String> = None, such as "Example Community";
        /// The country whose law applies, as its two letters (ISO 3166).
        ja "準拠する法の国。2 文字の国コード（ISO 3166）で指定します。"
        jurisdiction: Option<String> = None, such as "JP";
        /// Where abuse is reported: a `mailto:` address or a URL.
        ja "迷惑行為や違法な投稿の通報先。`mailto:` アドレスまたは URL。"
        abuse_contact: Option<String> = None, such as "mailto:abuse@example.com";
    }
}
