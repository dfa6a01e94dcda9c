//! One index of tantivy: its files, its writer, its reader.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use kukuri_domain::{EventId, Timestamp};
use kukuri_store::Seq;
use tantivy::{
    DocAddress, DocSet, Index, IndexReader, IndexWriter, ReloadPolicy, Searcher, SegmentReader, TERMINATED,
    TantivyError, collector::TopDocs, directory::error::LockError, schema::IndexRecordOption,
};

use super::{
    engine,
    schema::{CREATED_AT, Fields, schema},
};
use crate::{
    analyzer::VERSION,
    index::{Change, Hit, IndexError, IndexStats, Place, Result, Search},
    ranking::recency,
};

/// What is held in memory until a commit.
const WRITER_BYTES: usize = 64 << 20;

pub(super) struct Generation {
    number: u64,
    path: PathBuf,
    fields: Fields,
    reader: IndexReader,
    /// `None`: the last one failed, and is not to be trusted.
    writer: Mutex<Option<IndexWriter>>,
    /// How far what can be searched reaches: a commit is on disk a moment before.
    reached: Mutex<Option<Place>>,
}

impl Generation {
    /// Makes an empty one, in the place of what is there.
    pub(super) fn make(directory: &Path, number: u64) -> Result<Self> {
        let path = directory.join(number.to_string());
        if path.exists() {
            fs::remove_dir_all(&path).map_err(engine)?;
        }
        fs::create_dir_all(&path).map_err(engine)?;
        let (schema, _) = schema();
        let index = Index::create_in_dir(&path, schema).map_err(|error| failure(&path, error))?;
        Self::with(index, path, number)
    }

    /// Opens the one that is there. `Damaged`: it is of no use.
    pub(super) fn open(directory: &Path, number: u64) -> Result<Self> {
        let path = directory.join(number.to_string());
        if !path.exists() {
            return Self::make(directory, number);
        }
        let index = Index::open_in_dir(&path).map_err(|error| IndexError::Damaged(error.to_string()))?;
        if index.schema() != schema().0 {
            return Err(IndexError::Damaged("it was made by another version".to_owned()));
        }
        let opened = Self::with(index, path, number)?;
        if opened.payload()?.is_some_and(|(version, _)| version != VERSION) {
            return Err(IndexError::Damaged("it was made by another version".to_owned()));
        }
        Ok(opened)
    }

    fn with(index: Index, path: PathBuf, number: u64) -> Result<Self> {
        let (_, fields) = schema();
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into();
        let reader = reader.map_err(|error| failure(&path, error))?;
        // Taken now: so nobody else has this index.
        let writer = writer_of(&index).map_err(|error| failure(&path, error))?;
        let made = Self { number, path, fields, reader, writer: Mutex::new(Some(writer)), reached: Mutex::default() };
        *made.shown() = made.payload()?.and_then(|(_, reached)| reached);
        Ok(made)
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Makes changes to what has come as far as expected. Overtaken, it is `Locked`.
    pub(super) fn apply(&self, expected: Option<&Place>, changes: &[Change], reached: Option<Place>) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shown().as_ref() != expected {
            return Err(IndexError::Locked(self.path.display().to_string()));
        }
        let mut at_work = match writer.take() {
            Some(at_work) => at_work,
            None => writer_of(self.reader.searcher().index()).map_err(|error| self.failure(error))?,
        };
        // One that fails is dropped, with half of what it was to write.
        self.write(&mut at_work, changes, reached.as_ref())?;
        *writer = Some(at_work);
        self.reader.reload().map_err(|error| self.failure(error))?;
        *self.shown() = reached;
        Ok(())
    }

    fn shown(&self) -> MutexGuard<'_, Option<Place>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, writer: &mut IndexWriter, changes: &[Change], reached: Option<&Place>) -> Result<()> {
        for change in changes {
            let id = match change {
                Change::Put(document) => &document.id,
                Change::Remove(id) => id,
            };
            writer.delete_term(self.fields.by_id(id));
            if let Change::Put(document) = change {
                let document = self.fields.document(document);
                writer.add_document(document).map_err(|error| self.failure(error))?;
            }
        }
        let mut commit = writer.prepare_commit().map_err(|error| self.failure(error))?;
        commit.set_payload(&payload(reached));
        commit.commit().map_err(|error| self.failure(error))?;
        Ok(())
    }

    /// What the last commit says: the version, and how far it reaches.
    fn payload(&self) -> Result<Option<(u32, Option<Place>)>> {
        let metas = self.reader.searcher().index().load_metas().map_err(|error| self.failure(error))?;
        let Some(payload) = metas.payload else { return Ok(None) };
        read_payload(&payload)
            .map(Some)
            .ok_or_else(|| IndexError::Damaged(format!("what it says of itself: {payload}")))
    }

    pub(super) fn reached(&self) -> Option<Place> {
        self.shown().clone()
    }

    pub(super) fn search(&self, search: &Search) -> Result<Vec<Hit>> {
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
        let found = searcher.search(&self.fields.question(search), &best).map_err(|error| self.failure(error))?;
        let hit = |(score, place): (f32, DocAddress)| Ok(Hit { id: self.id_at(&searcher, place)?, score });
        let mut hits: Vec<Hit> = found.into_iter().map(hit).collect::<Result<_>>()?;
        hits.sort_by(|left, right| right.score.total_cmp(&left.score).then(left.id.cmp(&right.id)));
        Ok(hits)
    }

    fn id_at(&self, searcher: &Searcher, place: DocAddress) -> Result<EventId> {
        self.fields.id_of(&searcher.doc(place).map_err(|error| self.failure(error))?)
    }

    /// From the dictionaries of the segments, which are in order.
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

    /// The first of them in one segment.
    fn ids_of(
        &self,
        segment: &SegmentReader,
        after: Option<EventId>,
        limit: usize,
        ids: &mut Vec<EventId>,
    ) -> tantivy::Result<()> {
        let inverted = segment.inverted_index(self.fields.id)?;
        let range = inverted.terms().range();
        let range = if let Some(after) = &after { range.gt(after.as_bytes()) } else { range };
        let mut terms = range.into_stream()?;
        let wanted = ids.len().saturating_add(limit);
        while ids.len() < wanted && terms.advance() {
            let mut postings = inverted.read_postings_from_terminfo(terms.value(), IndexRecordOption::Basic)?;
            let mut is_alive = false;
            while postings.doc() != TERMINATED {
                is_alive |= !segment.is_deleted(postings.doc());
                postings.advance();
            }
            if is_alive && let Ok(id) = terms.key().try_into() {
                ids.push(EventId::from_bytes(id));
            }
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> Result<IndexStats> {
        let files = fs::read_dir(&self.path).into_iter().flatten();
        let bytes = files.flatten().filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum();
        Ok(IndexStats { documents: self.reader.searcher().num_docs(), bytes })
    }

    fn failure(&self, error: TantivyError) -> IndexError {
        failure(&self.path, error)
    }
}

/// One thread: a batch is small, and cores are for clients.
fn writer_of(index: &Index) -> tantivy::Result<IndexWriter> {
    index.writer_with_num_threads(1, WRITER_BYTES)
}

fn failure(path: &Path, error: TantivyError) -> IndexError {
    match error {
        TantivyError::LockFailure(LockError::LockBusy, _) => IndexError::Locked(path.display().to_string()),
        error @ TantivyError::DataCorruption(_) => IndexError::Damaged(error.to_string()),
        error => engine(error),
    }
}

/// The version, the row, and its mark.
fn payload(reached: Option<&Place>) -> String {
    match reached {
        Some(Place { seq, mark }) => format!("{VERSION} {seq} {mark}"),
        None => format!("{VERSION} -"),
    }
}

fn read_payload(text: &str) -> Option<(u32, Option<Place>)> {
    let (version, reached) = text.split_once(' ')?;
    let version = version.parse().ok()?;
    if reached == "-" {
        return Some((version, None));
    }
    let (seq, mark) = reached.split_once(' ').unwrap_or((reached, ""));
    Some((version, Some(Place { seq: Seq(seq.parse().ok()?), mark: mark.to_owned() })))
}
