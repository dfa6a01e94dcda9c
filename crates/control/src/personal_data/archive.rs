//! The archive of an export: a zip of files with one JSON object per line. It is made piece by piece, so that its size does not matter.

use std::{
    io::{self, Write},
    sync::Arc,
};

use kukuri_domain::PublicKey;
use parking_lot::Mutex;
use serde_json::{Map, Value as Json};
use zip::{
    CompressionMethod, ZipWriter,
    write::{SimpleFileOptions, StreamWriter},
};

use super::{EventCursor, PersonEvents};
use crate::{
    Control, Result,
    database::{Row, Value, sql},
    job::JobError,
};

/// Rows that are read at a time.
const PAGE: u64 = 500;
/// A file of events has no more bytes than this: longer ones need an extension of the format that not every program reads.
const MAX_EVENTS_FILE_LEN: u64 = 1 << 30;

/// Rows of a person, as a file.
struct Table {
    name: &'static str,
    /// `FROM` and `WHERE`. `$3` is the person's key, `PSEUDONYMS` its pseudonyms.
    from: &'static str,
    /// Two columns that order the rows: a number and a text.
    order: [&'static str; 2],
    /// Columns, each with its name in the file. A text of JSON has a name that ends with `_json`, which the file leaves out.
    columns: &'static [(&'static str, &'static str)],
}

/// All files but that of the events. Nothing in them is about another person: no actor, no reviewer, no private note.
const TABLES: [Table; 11] = [
    Table {
        name: "account",
        from: "cn_user.subscriber_accounts WHERE subscriber_pubkey = $3",
        order: ["created_at", "subscriber_pubkey"],
        columns: &[
            ("subscriber_pubkey", "pubkey"),
            ("status", "status"),
            ("reason", "reason"),
            ("created_at", "created_at"),
            ("updated_at", "updated_at"),
        ],
    },
    Table {
        name: "consents",
        from: "cn_user.policy_consents WHERE accepter_pubkey = $3",
        order: ["accepted_at", "consent_id"],
        columns: &[
            ("policy_type", "type"),
            ("version", "version"),
            ("locale", "locale"),
            ("content_hash", "content_hash"),
            ("accepted_at", "accepted_at"),
        ],
    },
    Table {
        name: "topic-requests",
        from: "cn_user.topic_subscription_requests WHERE requester_pubkey = $3",
        order: ["created_at", "request_id"],
        columns: &[
            ("request_id", "request_id"),
            ("topic_id", "topic_id"),
            ("topic_name", "topic_name"),
            ("requested_services", "requested_services"),
            ("reason", "reason"),
            ("status", "status"),
            ("review_note", "review_note"),
            ("created_at", "created_at"),
            ("reviewed_at", "reviewed_at"),
        ],
    },
    Table {
        name: "topic-subscriptions",
        from: "cn_user.topic_subscriptions WHERE subscriber_pubkey = $3",
        order: ["started_at", "topic_id"],
        columns: &[
            ("topic_id", "topic_id"),
            ("services", "services"),
            ("status", "status"),
            ("started_at", "started_at"),
            ("ended_at", "ended_at"),
        ],
    },
    Table {
        name: "plans",
        from: "cn_user.subscriptions WHERE subscriber_pubkey = $3",
        order: ["started_at", "subscription_id"],
        columns: &[
            ("plan_id", "plan_id"),
            ("status", "status"),
            ("started_at", "started_at"),
            ("ended_at", "ended_at"),
        ],
    },
    Table {
        name: "usage-by-day",
        from: "cn_user.usage_counters_daily WHERE pubkey = $3",
        order: ["day", "metric"],
        columns: &[("metric", "metric"), ("day", "day"), ("count", "count")],
    },
    Table {
        name: "usage",
        from: "cn_user.usage_events WHERE pubkey = $3",
        order: ["created_at", "usage_id"],
        columns: &[
            ("metric", "metric"),
            ("units", "units"),
            ("outcome", "outcome"),
            ("request_id", "request_id"),
            ("created_at", "created_at"),
        ],
    },
    Table {
        name: "bans",
        from: "cn_user.bans WHERE pseudonym IN (PSEUDONYMS)",
        order: ["created_at", "pseudonym"],
        columns: &[("reason", "reason"), ("created_at", "created_at"), ("until", "until"), ("lifted_at", "lifted_at")],
    },
    Table {
        name: "allowlist",
        from: "cn_user.allowlist WHERE pubkey = $3",
        order: ["created_at", "pubkey"],
        columns: &[("created_at", "created_at")],
    },
    Table {
        name: "decisions",
        from: "cn_admin.audit_logs WHERE target IN (SELECT 'person:' || pseudonym FROM cn_admin.persons WHERE pubkey = $3) \
            OR target IN (SELECT 'request:' || request_id FROM cn_user.topic_subscription_requests WHERE requester_pubkey = $3)",
        order: ["audit_id", "target"],
        columns: &[
            ("created_at", "created_at"),
            ("action", "action"),
            ("role", "role"),
            ("diff_json", "diff_json"),
            ("public_reason", "public_reason"),
        ],
    },
    Table {
        name: "exports",
        from: "cn_user.personal_data_export_requests WHERE requester_pubkey = $3",
        order: ["created_at", "export_request_id"],
        columns: &[
            ("export_request_id", "export_request_id"),
            ("created_at", "created_at"),
            ("downloaded_at", "downloaded_at"),
        ],
    },
];

/// Where the archive is.
enum Position {
    /// In the file of a table, after a row.
    Table { number: usize, after: (Value, Value) },
    /// In a file of events.
    Events { number: u32, len: u64, from: EventCursor },
    /// Everything was written.
    End,
}

impl Position {
    fn table(number: usize) -> Self {
        Self::Table { number, after: (Value::Integer(-1), Value::Text(String::new())) }
    }
}

/// An archive that is being made.
pub(super) struct Archive<'j> {
    control: &'j Control,
    events: &'j dyn PersonEvents,
    person: PublicKey,
    position: Position,
    /// `None`: it is finished.
    zip: Option<ZipWriter<StreamWriter<Buffer>>>,
    written: Buffer,
}

/// Bytes that the zip writer has written and nobody has taken yet.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Buffer {
    fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn take(&self, max: usize) -> Vec<u8> {
        let mut all = self.0.lock();
        let taken = max.min(all.len());
        let rest = all.split_off(taken);
        std::mem::replace(&mut *all, rest)
    }
}

impl<'j> Archive<'j> {
    pub(super) fn new(control: &'j Control, events: &'j dyn PersonEvents, person: PublicKey) -> Self {
        let written = Buffer::default();
        let zip = Some(ZipWriter::new_stream(written.clone()));
        Self { control, events, person, position: Position::table(0), zip, written }
    }

    /// The next bytes of the archive, `len` unless they are the last. `None`: there are no more.
    pub(super) async fn next_bytes(&mut self, len: usize) -> Result<Option<Vec<u8>>, JobError> {
        while self.written.len() < len && self.zip.is_some() {
            self.write_some().await?;
        }
        let bytes = self.written.take(len);
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// Writes a page of rows or events, or the end.
    async fn write_some(&mut self) -> Result<(), JobError> {
        self.position = match std::mem::replace(&mut self.position, Position::End) {
            Position::Table { number, after } => self.write_table(number, after).await?,
            Position::Events { number, len, from } => self.write_events(number, len, from).await?,
            Position::End => {
                if let Some(zip) = self.zip.take() {
                    zip.finish()?;
                }
                Position::End
            }
        };
        Ok(())
    }

    async fn write_table(&mut self, number: usize, after: (Value, Value)) -> Result<Position, JobError> {
        let Some(table) = TABLES.get(number) else {
            self.begin_file("events.ndjson")?;
            return Ok(Position::Events { number: 1, len: 0, from: EventCursor::default() });
        };
        if after.0 == Value::Integer(-1) {
            self.begin_file(&format!("{}.ndjson", table.name))?;
        }
        let rows = self.rows(table, after).await?;
        for row in &rows {
            let mut line = table.object(row)?.to_string();
            line.push('\n');
            self.write(line.as_bytes())?;
        }
        match rows.last() {
            Some(last) if rows.len() as u64 == PAGE => {
                Ok(Position::Table { number, after: (last.get(0)?, last.get(1)?) })
            }
            _ => Ok(Position::table(number + 1)),
        }
    }

    async fn rows(&self, table: &Table, (number, text): (Value, Value)) -> Result<Vec<Row>> {
        let pseudonyms = self.control.secrets().pseudonyms(&self.person);
        let places: Vec<String> = (0..pseudonyms.len()).map(|at| format!("${}", at + 5)).collect();
        let [first, second] = table.order;
        let columns: Vec<&str> = table.columns.iter().map(|(column, _)| *column).collect();
        let from = table.from.replace("PSEUDONYMS", &places.join(", ")).replacen(" WHERE ", " WHERE (", 1);
        let select = format!(
            "SELECT {first}, {second}, {} FROM {from}) AND ({first}, {second}) > ($1, $2) AND $3 <> '' \
             ORDER BY {first}, {second} LIMIT $4",
            columns.join(", ")
        );
        let select = sql(select).bind(number).bind(text).bind(&self.person).bind(PAGE);
        let uses_pseudonyms = table.from.contains("PSEUDONYMS");
        let bound = pseudonyms.iter().filter(|_| uses_pseudonyms);
        self.control.database().read(bound.fold(select, |select, pseudonym| select.bind(pseudonym))).await
    }

    async fn write_events(&mut self, number: u32, len: u64, from: EventCursor) -> Result<Position, JobError> {
        let page = self.events.page(&self.person, from).await?;
        let (mut number, mut len) = (number, len);
        for event in &page.events {
            if len > 0 && len + event.len() as u64 > MAX_EVENTS_FILE_LEN {
                (number, len) = (number + 1, 0);
                self.begin_file(&format!("events-{number}.ndjson"))?;
            }
            self.write(event)?;
            self.write(b"\n")?;
            len += event.len() as u64 + 1;
        }
        Ok(page.next.map_or(Position::End, |from| Position::Events { number, len, from }))
    }

    fn begin_file(&mut self, name: &str) -> Result<(), JobError> {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        match &mut self.zip {
            Some(zip) => Ok(zip.start_file(name, options)?),
            None => Ok(()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), JobError> {
        match &mut self.zip {
            Some(zip) => Ok(zip.write_all(bytes)?),
            None => Ok(()),
        }
    }
}

impl Table {
    /// A row as an object: what is null is left out.
    fn object(&self, row: &Row) -> Result<Json> {
        let mut object = Map::new();
        for (at, (_, name)) in self.columns.iter().enumerate() {
            let value = match row.get::<Value>(at + 2)? {
                Value::Integer(number) => Json::from(number),
                Value::Text(text) => match name.ends_with("_json") {
                    true => serde_json::from_str(&text).unwrap_or_default(),
                    false => Json::from(text),
                },
                Value::Bytes(_) | Value::Null => continue,
            };
            object.insert(name.trim_end_matches("_json").to_owned(), value);
        }
        Ok(Json::Object(object))
    }
}
