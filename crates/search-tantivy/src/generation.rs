//! One index of tantivy: its files, its writer, its reader.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use kukuri_domain::{EventId, Timestamp};
use kukuri_search::{
    DocumentChange, Hit, IndexError, IndexPosition, IndexStats, Search, analyzer::VERSION, index::Result,
    ranking::recency,
};
use kukuri_store::Seq;
use parking_lot::Mutex;
use tantivy::{
    DocAddress, DocSet, Index, IndexReader, IndexWriter, ReloadPolicy, Searcher, SegmentReader, TERMINATED,
    TantivyError,
    collector::{Collector, TopDocs},
    directory::error::LockError,
    query::{EnableScoring, Query},
    schema::IndexRecordOption,
};

use crate::{
    index::backend_error,
    schema::{CREATED_AT, Fields, IdColumns, prefix_of, schema},
    tokens,
};

/// The nice value of the threads that index.
const PRIORITY: i32 = 10;
/// Memory for uncommitted documents.
const WRITER_BYTES: usize = 64 << 20;

pub(super) struct Generation {
    pub(super) number: u64,
    path: PathBuf,
    fields: Fields,
    reader: IndexReader,
    /// `None`: the last writer failed and was dropped.
    writer: Mutex<Option<IndexWriter>>,
    /// The position that the reader shows; set after the commit and the reload.
    reached: Mutex<Option<IndexPosition>>,
}

impl Generation {
    /// Creates an empty generation; replaces files that are there.
    pub(super) fn create(directory: &Path, number: u64) -> Result<Self> {
        let path = directory.join(number.to_string());
        if path.exists() {
            fs::remove_dir_all(&path).map_err(backend_error)?;
        }
        fs::create_dir_all(&path).map_err(backend_error)?;
        let (schema, fields) = schema();
        let index = Index::create_in_dir(&path, schema).map_err(|error| failure(&path, error))?;
        Self::with_index(&index, fields, path, number)
    }

    /// Opens a generation, or creates it if there is none.
    pub(super) fn open(directory: &Path, number: u64) -> Result<Self> {
        let path = directory.join(number.to_string());
        if !path.exists() {
            return Self::create(directory, number);
        }
        let index = Index::open_in_dir(&path).map_err(|error| IndexError::Damaged(error.to_string()))?;
        let (schema, fields) = schema();
        if index.schema() != schema {
            return Err(other_version());
        }
        Self::with_index(&index, fields, path, number)
    }

    fn with_index(index: &Index, fields: Fields, path: PathBuf, number: u64) -> Result<Self> {
        tokens::register(index);
        let opened = || -> tantivy::Result<_> {
            let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
            // The writer's lock keeps other processes out from here on.
            Ok((reader, writer_of(index)?, index.load_metas()?.payload))
        };
        let (reader, writer, payload) = opened().map_err(|error| failure(&path, error))?;
        let reached = match &payload {
            None => None,
            Some(text) => match read_payload(text) {
                Some((VERSION, reached)) => reached,
                Some(_) => return Err(other_version()),
                None => return Err(IndexError::Damaged(format!("unreadable commit payload: {text}"))),
            },
        };
        Ok(Self { number, path, fields, reader, writer: Mutex::new(Some(writer)), reached: Mutex::new(reached) })
    }

    /// Applies changes and their position in one commit, if the position is still the expected one.
    pub(super) fn apply(
        &self,
        expected: Option<&IndexPosition>,
        changes: &[DocumentChange],
        reached: Option<IndexPosition>,
    ) -> Result<()> {
        let mut writer = self.writer.lock();
        if self.reached.lock().as_ref() != expected {
            return Err(IndexError::Overtaken(self.path.display().to_string()));
        }
        self.write(&mut writer, changes, reached.as_ref()).map_err(|error| self.failure(error))?;
        *self.reached.lock() = reached;
        Ok(())
    }

    fn write(
        &self,
        writer: &mut Option<IndexWriter>,
        changes: &[DocumentChange],
        reached: Option<&IndexPosition>,
    ) -> tantivy::Result<()> {
        // A writer that fails is dropped with its uncommitted changes.
        let mut current = match writer.take() {
            Some(current) => current,
            None => writer_of(self.reader.searcher().index())?,
        };
        for change in changes {
            match change {
                DocumentChange::Put(document) => {
                    current.delete_term(self.fields.by_id(&document.id));
                    current.add_document(self.fields.document(document))?;
                }
                DocumentChange::Add(document) => {
                    current.add_document(self.fields.document(document))?;
                }
                DocumentChange::Remove(id) => {
                    current.delete_term(self.fields.by_id(id));
                }
            }
        }
        let mut commit = current.prepare_commit()?;
        commit.set_payload(&payload(reached));
        commit.commit()?;
        *writer = Some(current);
        self.reader.reload()
    }

    pub(super) fn reached(&self) -> Option<IndexPosition> {
        self.reached.lock().clone()
    }

    /// The best hits. None, once the flag is set: nobody waits for them.
    pub(super) fn search(&self, search: &Search, is_cancelled: &AtomicBool) -> Result<Vec<Hit>> {
        if search.limit == 0 {
            return Ok(Vec::new());
        }
        let searcher = self.reader.searcher();
        let now = search.now;
        let best =
            TopDocs::with_limit(search.limit).and_offset(search.skip).tweak_score(move |segment: &SegmentReader| {
                let created_at =
                    segment.fast_fields().u64(CREATED_AT).map(|column| column.first_or_default_col(0)).ok();
                move |document, score: f32| {
                    let created_at = created_at.as_ref().map_or(0, |column| column.get_val(document));
                    score * recency(Timestamp(created_at), now)
                }
            });
        let found = collect(&searcher, &self.fields.query(search), &best, is_cancelled);
        let Some(found) = found.map_err(|error| self.failure(error))? else { return Ok(Vec::new()) };
        let ids = searcher.segment_readers().iter().map(IdColumns::of).collect::<tantivy::Result<Vec<_>>>();
        let ids = ids.map_err(|error| self.failure(error))?;
        let hit = |(score, address): (f32, DocAddress)| Hit {
            id: ids[address.segment_ord as usize].id(address.doc_id),
            score,
        };
        let mut hits: Vec<Hit> = found.into_iter().map(hit).collect();
        hits.sort_by(|left, right| right.score.total_cmp(&left.score).then(left.id.cmp(&right.id)));
        Ok(hits)
    }

    /// Reads the term dictionaries of the segments, which are sorted.
    pub(super) fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
        let searcher = self.reader.searcher();
        let mut ids = Vec::new();
        for segment in searcher.segment_readers() {
            self.ids_of(segment, after, limit, &mut ids).map_err(|error| self.failure(error))?;
        }
        ids.sort_unstable();
        ids.truncate(limit);
        Ok(ids)
    }

    /// Appends up to `limit` ids of one segment.
    fn ids_of(
        &self,
        segment: &SegmentReader,
        after: Option<EventId>,
        limit: usize,
        ids: &mut Vec<EventId>,
    ) -> tantivy::Result<()> {
        let (inverted, columns) = (segment.inverted_index(self.fields.id)?, IdColumns::of(segment)?);
        let range = inverted.terms().range();
        let range = if let Some(after) = &after { range.ge(prefix_of(after)) } else { range };
        let mut terms = range.into_stream()?;
        let max_ids = ids.len().saturating_add(limit);
        while ids.len() < max_ids && terms.advance() {
            let mut postings = inverted.read_postings_from_terminfo(terms.value(), IndexRecordOption::Basic)?;
            while postings.doc() != TERMINATED {
                let (is_alive, id) = (!segment.is_deleted(postings.doc()), columns.id(postings.doc()));
                if is_alive && after.is_none_or(|after| id > after) {
                    ids.push(id);
                }
                postings.advance();
            }
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> IndexStats {
        let files = fs::read_dir(&self.path).into_iter().flatten();
        let bytes = files.flatten().filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum();
        IndexStats { documents: self.reader.searcher().num_docs(), bytes }
    }

    fn failure(&self, error: TantivyError) -> IndexError {
        failure(&self.path, error)
    }
}

/// As `Searcher::search`, but cancellable between segments. `None`: it was cancelled.
fn collect<C: Collector>(
    searcher: &Searcher,
    query: &dyn Query,
    collector: &C,
    is_cancelled: &AtomicBool,
) -> tantivy::Result<Option<C::Fruit>> {
    let weight = query.weight(EnableScoring::enabled_from_searcher(searcher))?;
    let mut fruits = Vec::new();
    for (ordinal, segment) in (0..).zip(searcher.segment_readers()) {
        if is_cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        fruits.push(collector.collect_segment(weight.as_ref(), ordinal, segment)?);
    }
    collector.merge_fruits(fruits).map(Some)
}

/// One thread that indexes, beside those that merge. They give way to those that serve clients: what is not indexed yet is found
/// as well, and a node that falls behind for long takes in less (O-9).
fn writer_of(index: &Index) -> tantivy::Result<IndexWriter> {
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            // Threads have the priority of the thread that makes them.
            let _ = rustix::process::nice(PRIORITY);
            index.writer_with_num_threads(1, WRITER_BYTES)
        });
        made.join().unwrap_or_else(|_| Err(TantivyError::ErrorInThread("the writer could not be made".to_owned())))
    })
}

fn failure(path: &Path, error: TantivyError) -> IndexError {
    match error {
        TantivyError::LockFailure(LockError::LockBusy, _) => IndexError::Locked(path.display().to_string()),
        error @ TantivyError::DataCorruption(_) => IndexError::Damaged(error.to_string()),
        error => backend_error(error),
    }
}

/// Version, row and fingerprint.
fn payload(reached: Option<&IndexPosition>) -> String {
    match reached {
        Some(IndexPosition { seq, fingerprint }) => format!("{VERSION} {seq} {fingerprint}"),
        None => format!("{VERSION} -"),
    }
}

fn read_payload(text: &str) -> Option<(u32, Option<IndexPosition>)> {
    let (version, reached) = text.split_once(' ')?;
    let version = version.parse().ok()?;
    if reached == "-" {
        return Some((version, None));
    }
    let (seq, fingerprint) = reached.split_once(' ').unwrap_or((reached, ""));
    Some((version, Some(IndexPosition { seq: Seq(seq.parse().ok()?), fingerprint: fingerprint.to_owned() })))
}

fn other_version() -> IndexError {
    IndexError::Damaged("another version of this program wrote it".to_owned())
}

#[cfg(test)]
mod tests {
    use kukuri_domain::{Kind, PublicKey};
    use kukuri_search::{Document, SearchQuery, Text};

    use super::*;

    #[test]
    fn cancelled_search_collects_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let generation = Generation::create(directory.path(), 1).unwrap();
        let document = Document {
            id: EventId::from_bytes([1; 32]),
            author: PublicKey::from_bytes([1; 32]),
            kind: Kind(1),
            created_at: Timestamp(1),
            topics: Vec::new(),
            text: Text { title: String::new(), body: "tea".to_owned() },
        };
        generation.apply(None, &[DocumentChange::Put(Box::new(document))], Some(Seq(1).into())).unwrap();
        let search = Search::new(SearchQuery::parse("tea").unwrap(), Timestamp(1), 10);
        for (is_cancelled, hits) in [(false, 1), (true, 0)] {
            assert_eq!(generation.search(&search, &AtomicBool::new(is_cancelled)).unwrap().len(), hits);
        }
    }
}
