//! `[disk]`

use kukuri_config::{ByteSize, section};

use super::Settings;
use crate::config::StorePlace;

section! {
    /// What happens when the disk fills up, by the free space in the file system of the embedded store: bytes, or text
    /// such as `"2GiB"`. The three must descend. They do not apply to a store on Postgres, whose disk is the server's.
    ja "ディスクの空きが減ったときの動作。組み込みストアのあるファイルシステムの空き容量を、バイト数または `\"2GiB\"` のように\
        指定します。3 つの値はこの順に小さくします。Postgres に保存する場合は使いません。"
    Disk in "disk." {
        /// With less free space than this, history from imports and other nodes is refused.
        ja "空き容量がこれを下回ると、インポートや他ノードからの過去のイベントを拒否します。"
        live_only: ByteSize = ByteSize(2 << 30);
        /// With less free space than this, topics of the lowest priority are refused too.
        ja "空き容量がこれを下回ると、優先度が最も低いトピックのイベントも拒否します。"
        shedding: ByteSize = ByteSize(1 << 30);
        /// With less free space than this, only deletion and vanish requests of authors with another event here are accepted.
        ja "空き容量がこれを下回ると、このノードに他のイベントがある作者の削除要求と消去要求だけを受け付けます。"
        full: ByteSize = ByteSize(256 << 20);
    }
}

impl Settings {
    /// `None` with a store on Postgres: the node itself then writes almost nothing.
    pub(crate) fn watched_disk(&self) -> Option<kukuri_engine::config::Disk> {
        let StorePlace::Lmdb(path) = self.store_place() else { return None };
        Some(kukuri_engine::config::Disk {
            path,
            live_only: self.disk.live_only.0,
            shedding: self.disk.shedding.0,
            full: self.disk.full.0,
        })
    }
}
