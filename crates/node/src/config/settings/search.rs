//! `[search]`

use std::{collections::BTreeSet, ops::RangeInclusive};

use kukuri_config::section;
use kukuri_domain::Kind;
use kukuri_search::document::DEFAULT_KINDS;

use super::Settings;
use crate::config::{IndexPlace, StorePlace};

section! {
    /// Full-text search (NIP-50).
    ja "全文検索（NIP-50）。"
    Search in "search." {
        /// `embedded`: the index is in `index` in the data directory. `postgres`: the index is in the database of the
        /// store, in the schema `cn_search`, shared by all nodes on it; one of them updates it. `off`: there is no
        /// index, and the node refuses to search. If it is not set, the index is where the store is.
        ja "`embedded`：データディレクトリ内の `index` に置きます。`postgres`：イベントと同じデータベースのスキーマ \
            `cn_search` に置き、全ノードで共有します（更新は 1 つのノードが行います）。`off`：インデックスを持たず、検索を\
            拒否します。未設定ならイベントの保存先に合わせます。"
        index: Option<IndexPlace> = None, such as "embedded", needs restart;
        /// The kinds that are indexed: numbers, or ranges such as `"30000-39999"`. Private messages (4, 1059, 21059)
        /// never are. After a change the index is rebuilt at the next start; until that is done, search finds little.
        /// Nodes on one database set the same kinds.
        ja "検索できる kind。番号、または `\"30000-39999\"` のような範囲で指定します。プライベートメッセージ（4、1059、21059）は\
            対象になりません。変更すると次の起動時にインデックスを作り直し、終わるまでは一部しか見つかりません。データベースを\
            共有するノードでは同じ値にします。"
        kinds: Vec<RangeInclusive<u16>> = DEFAULT_KINDS.map(|kind| kind..=kind).to_vec(), needs restart;
    }
}

impl Settings {
    /// `search.index`, or its default, which depends on the store.
    pub(crate) fn index_place(&self) -> IndexPlace {
        self.search.index.unwrap_or_else(|| match self.store_place() {
            StorePlace::Lmdb(_) => IndexPlace::Embedded,
            StorePlace::Postgres(_) => IndexPlace::Postgres,
        })
    }

    /// `search.kinds` without private kinds (E-10).
    pub(crate) fn indexed_kinds(&self) -> BTreeSet<Kind> {
        let kinds = self.search.kinds.iter().cloned().flatten().map(Kind);
        kinds.filter(|kind| !kind.is_private()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_kinds_are_never_indexed() {
        // E-10
        let mut settings = Settings::default();
        settings.search.kinds = vec![1..=1, 4..=4, 1058..=1060];
        assert_eq!(settings.indexed_kinds(), [1, 1058, 1060].map(Kind).into());
    }
}
