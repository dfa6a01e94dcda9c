//! `[relay]`

use kukuri_config::{HttpUrl, section};
use kukuri_domain::PublicKey;
use kukuri_relay::Info;

use crate::config::Foreign;

section! {
    /// How the node presents itself to clients (NIP-11).
    ja "クライアントに示すノードの情報（NIP-11）。"
    Relay in "relay." {
        /// The name of the node.
        ja "ノードの名前。"
        name: String = Info::default().name;
        /// What the node is for, in a sentence or two.
        ja "ノードの目的。1〜2 文で書きます。"
        description: String = Info::default().description;
        /// How to reach the operator: a `mailto:` address or a URL.
        ja "運営者の連絡先。`mailto:` アドレスまたは URL。"
        contact: Option<String> = None, such as "mailto:operator@example.com";
        /// The operator's public key, 64 lowercase hex digits.
        ja "運営者の公開鍵。小文字の 16 進数 64 桁。"
        pubkey: Option<Foreign<PublicKey>> = None,
            such as "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
        /// The URL of a square picture.
        ja "アイコン（正方形の画像）の URL。"
        icon: Option<HttpUrl> = None, such as "https://example.com/icon.png";
        /// The languages of the community, as IETF language tags. Empty: any.
        ja "コミュニティで使う言語（IETF 言語タグ）。空なら言語を問いません。"
        language_tags: Vec<String> = Vec::new();
        /// The URL of a page that says what may be posted.
        ja "投稿ルールを書いたページの URL。"
        posting_policy: Option<HttpUrl> = None, such as "https://example.com/policy";
    }
}

impl Relay {
    pub(crate) fn info(&self, own_key: Option<PublicKey>) -> Info {
        Info {
            name: self.name.clone(),
            description: self.description.clone(),
            contact: self.contact.clone(),
            pubkey: self.pubkey.map(|key| key.0),
            own_key,
            icon: self.icon.as_ref().map(|url| url.as_ref().to_owned()),
            language_tags: self.language_tags.clone(),
            posting_policy: self.posting_policy.as_ref().map(|url| url.as_ref().to_owned()),
        }
    }
}
