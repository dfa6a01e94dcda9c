//! Taking a batch in: what a decision needs is read, the domain decides, its answer is written (P-3).
//!
//! The batch is one transaction. An event that makes a decision or an index fail is taken out, counted and refused
//! alone; the others are tried again without it. Want of room refuses everything but requests.

use std::{
    collections::{BTreeSet, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use kukuri_domain::{
    Admitted, Event, EventId, Kind, KindClass, Letter, Millis, Reason, Refusal, State, TopicId,
    capacity::{self, TopicLoad},
    decision::{self, Decision, Known, Row as KnownRow, Verdict},
    deletion::{DeletionResult, DeletionTarget, DeletionTargetKind, Tombstone},
    sharing::Trace,
    vanish::VanishMark,
};
use kukuri_store::{Ingested, Outcome, Standing};

use crate::{
    batch::{Batch, Committed},
    error::{Failure, Result, engine},
    format,
    key::{self, AuthorNo, EventNo, Order, prefix},
    known::{tombstones_of, vanish_marks_of},
    pack::Unpack,
    record::{Cover, KnownId, TombstoneRecord, VanishRecord},
    room::Load,
    tables::Table,
    writer::{Writer, locked},
};

/// What went wrong with an attempt.
pub(crate) enum Attempt {
    /// One event did not get through.
    Event(usize, Failure),
    /// No single event is to blame.
    Whole(Failure),
}

/// A panic is a failure of the event that caused it.
pub(crate) fn guarded<T>(take: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(take)).unwrap_or(Err(Failure::Panic))
}

impl Writer {
    /// Takes a batch in, in a transaction of its own.
    pub(crate) fn ingest(&mut self, batch: &[Admitted], now: Millis) -> Result<Ingested> {
        let mut room = self.look_for_room(batch)?;
        if let Some(ingested) = self.answer_without_writing(batch, room, now)? {
            return Ok(ingested);
        }
        let mut failed = HashSet::new();
        loop {
            match self.attempt(batch, room, &failed, now) {
                Ok((ingested, repeats, stamp)) => {
                    self.repeats.note(repeats, stamp);
                    self.flush_if_due(now);
                    return Ok(ingested);
                }
                Err(Attempt::Event(index, error)) => {
                    tracing::error!(id = %batch[index].event().id, %error, "an event was refused: it can't be stored");
                    failed.insert(index);
                }
                Err(Attempt::Whole(error)) if !error.is_full() => return Err(error),
                Err(Attempt::Whole(error)) if room == Room::ForAll => {
                    tracing::warn!(%error, "no room: only requests are taken");
                    room = Room::ForRequests;
                }
                Err(Attempt::Whole(error)) if batch.len() == 1 => {
                    tracing::error!(%error, "no room even for a request");
                    return Ok(Ingested { outcomes: vec![Outcome::Refused(Refusal::DiskFull)], ..Ingested::default() });
                }
                Err(Attempt::Whole(_)) => return self.ingest_one_by_one(batch, now),
            }
        }
    }

    /// What does not fit together may fit alone; one that does not is refused without the others.
    fn ingest_one_by_one(&mut self, batch: &[Admitted], now: Millis) -> Result<Ingested> {
        let mut all = Ingested::default();
        for event in batch {
            let one = self.ingest(std::slice::from_ref(event), now)?;
            all.outcomes.extend(one.outcomes);
            all.stages.extend(one.stages);
            all.head = all.head.max(one.head);
            add(&mut all.deletions, one.deletions);
        }
        Ok(all)
    }

    /// Whether the batch fits without the room that is kept for requests.
    fn look_for_room(&mut self, batch: &[Admitted]) -> Result<Room> {
        let txn = self.env.read_txn().map_err(engine)?;
        let fits = self.room.fits(&self.env, &self.tables, &txn, Load::of(batch))?;
        Ok(if fits { Room::ForAll } else { Room::ForRequests })
    }

    /// Answers a batch in which nothing is to be stored: known events, ephemeral ones, and those there is no room for.
    pub(crate) fn answer_without_writing(
        &mut self,
        batch: &[Admitted],
        room: Room,
        now: Millis,
    ) -> Result<Option<Ingested>> {
        let txn = self.env.read_txn().map_err(engine)?;
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut repeats = Vec::new();
        for admitted in batch {
            let event = admitted.event();
            if event.kind.class() == KindClass::Ephemeral {
                outcomes.push(Outcome::Ephemeral);
            } else if let Some(record) = self.tables.get(&txn, Table::Ids, event.id.as_bytes())? {
                outcomes.push(repeat(event, &KnownId::unpack(record)?, now));
                repeats.push(event.id);
            } else if room == Room::ForRequests && !event.kind.is_request() {
                outcomes.push(Outcome::Refused(Refusal::DiskFull));
            } else {
                return Ok(None);
            }
        }
        let head = format::node_record(&self.tables, &txn)?.head;
        drop(txn);
        let latest = locked(&self.clock).latest;
        self.repeats.note(repeats, latest.max(now));
        self.flush_if_due(now);
        Ok(Some(Ingested { outcomes, head, ..Ingested::default() }))
    }

    fn attempt(
        &self,
        events: &[Admitted],
        room: Room,
        failed: &HashSet<usize>,
        now: Millis,
    ) -> Result<(Ingested, Vec<EventId>, Millis), Attempt> {
        let mut taking = Taking::new(Batch::begin(self.around(), now).map_err(Attempt::Whole)?, now, room);
        taking.batch.node.failed += failed.len() as u64;
        let mut outcomes = Vec::with_capacity(events.len());
        for (index, admitted) in events.iter().enumerate() {
            if failed.contains(&index) {
                outcomes.push(Outcome::Refused(Refusal::Failed));
                continue;
            }
            #[cfg(test)]
            let faults = &self.faults;
            let taken = guarded(|| {
                #[cfg(test)]
                faults.strike(admitted)?;
                taking.take_in(admitted)
            });
            match taken {
                Ok(outcome) => outcomes.push(outcome),
                Err(failure) if failure.is_full() || failure.is_of_the_engine() => return Err(Attempt::Whole(failure)),
                Err(failure) => return Err(Attempt::Event(index, failure)),
            }
        }
        let (deletions, repeats, stamp) = (taking.deletions, taking.repeats, taking.batch.stamp());
        let Committed { stages, head, clock } = taking.batch.commit().map_err(Attempt::Whole)?;
        self.saw(clock);
        Ok((Ingested { outcomes, head, deletions, stages }, repeats, stamp))
    }
}

fn repeat(event: &Event, known: &KnownId, now: Millis) -> Outcome {
    let refusal = decision::repeat(event, known.record.standing.state(), now);
    refusal.map_or(Outcome::Duplicate, Outcome::Refused)
}

fn add(sum: &mut DeletionResult, more: DeletionResult) {
    sum.deleted_count += more.deleted_count;
    sum.skipped_count += more.skipped_count;
}

/// Whom there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    ForAll,
    ForRequests,
}

/// A batch that is being taken in.
pub(crate) struct Taking<'s> {
    pub(crate) batch: Batch<'s>,
    now: Millis,
    room: Room,
    pub(crate) deletions: DeletionResult,
    pub(crate) repeats: Vec<EventId>,
    /// Those that changed something.
    pub(crate) applied: Vec<Admitted>,
}

impl<'s> Taking<'s> {
    pub(crate) fn new(batch: Batch<'s>, now: Millis, room: Room) -> Self {
        Self { batch, now, room, deletions: DeletionResult::default(), repeats: Vec::new(), applied: Vec::new() }
    }

    /// What comes next comes at this time.
    pub(crate) fn go_on(&mut self, now: Millis) {
        self.now = now;
        self.batch.tick(now);
    }

    /// Takes in what was taken in before, and acknowledged: whatever room there is for others.
    pub(crate) fn take_in_again(&mut self, admitted: &Admitted) -> Result<()> {
        if self.batch.known_id(&admitted.event().id)?.is_none()
            && let Verdict::Known(decision) = self.decide(admitted)?
        {
            self.apply(admitted, *decision)?;
        }
        Ok(())
    }

    pub(crate) fn take_in(&mut self, admitted: &Admitted) -> Result<Outcome> {
        let event = admitted.event();
        if event.kind.class() == KindClass::Ephemeral {
            return Ok(Outcome::Ephemeral);
        }
        if let Some(known) = self.batch.known_id(&event.id)? {
            self.repeats.push(event.id);
            return Ok(repeat(event, &known, self.now));
        }
        if self.room == Room::ForRequests && !event.kind.is_request() {
            return Ok(Outcome::Refused(Refusal::DiskFull));
        }
        if let Some(refusal) = self.lacks_room(admitted)? {
            return Ok(Outcome::Refused(refusal));
        }
        match self.decide(admitted)? {
            Verdict::Known(decision) => self.apply(admitted, *decision),
            Verdict::Ephemeral => Ok(Outcome::Ephemeral),
            Verdict::Refused(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    fn lacks_room(&mut self, admitted: &Admitted) -> Result<Option<Refusal>> {
        let mut topics = Vec::with_capacity(admitted.topics().len());
        for topic in admitted.topics() {
            topics.push(TopicLoad {
                load: self.batch.topic_load(topic)?,
                is_first_to_go: self.batch.around.subscriptions.is_first_to_go(topic),
            });
        }
        Ok(capacity::refuse(admitted.event().kind, admitted.source(), self.batch.node_load(), &topics))
    }

    /// Gathers what is known about the event and asks the domain.
    fn decide(&self, admitted: &Admitted) -> Result<Verdict> {
        let event = admitted.event();
        let tables = &self.batch.around.tables;
        let targets = match event.kind {
            Kind::DELETION => self.rows_named_by(event)?,
            _ => Vec::new(),
        };
        let targets: Vec<_> = targets.iter().map(|(event, state)| KnownRow { event, state: *state }).collect();
        let key = match event.address() {
            Some(address) => self.batch.key(&address)?.map(|key| key.state()),
            None => None,
        };
        let known = Known {
            vanish_marks: &vanish_marks_of(tables, &self.batch.txn, event)?,
            tombstones: &tombstones_of(tables, &self.batch.txn, event)?,
            key,
            targets: &targets,
        };
        Ok(decision::decide(admitted, &known, self.now))
    }

    /// The rows that a deletion request names by id, and those of the addresses it names that are not deleted already.
    fn rows_named_by(&self, request: &Event) -> Result<Vec<(Event, State)>> {
        let mut numbers = Vec::new();
        for target in DeletionTarget::parse_from_event(request) {
            match &target.target {
                DeletionTargetKind::EventId(id) => {
                    numbers.extend(self.batch.known_id(id)?.and_then(|known| known.no));
                }
                DeletionTargetKind::Address(address) => {
                    numbers.extend(self.batch.key(address)?.and_then(|key| key.current));
                    for no in numbers_under(&self.batch, Table::Hidden, &key::hidden_versions(address))? {
                        // There may be many versions: those that are out of reach are not worth reading.
                        if self.batch.created_at(no)? <= request.created_at {
                            numbers.push(no);
                        }
                    }
                }
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        let rows = numbers.into_iter().map(|no| self.batch.outline(no));
        rows.filter_map(Result::transpose).collect()
    }

    /// Carries a decision out.
    fn apply(&mut self, admitted: &Admitted, decision: Decision) -> Result<Outcome> {
        let event = admitted.event();
        let mut traces = self.placed(admitted, decision.traces)?;
        for (id, reason) in decision.taken {
            self.take_away(&id, reason, event.id)?;
        }
        for tombstone in decision.tombstones {
            self.record(tombstone)?;
        }
        if let Some(mark) = decision.vanish {
            let topics = self.vanish(mark)?;
            traces.extend(topics.into_iter().map(|topic| (topic, Trace::of(event))));
        }
        if let Some(result) = decision.deletion {
            add(&mut self.deletions, result);
        }
        let outcome = match decision.against {
            None => {
                self.batch.store(admitted)?;
                Outcome::Stored
            }
            Some((reason, cause)) => {
                if let (Some(floor), Some(address)) = (decision.floor, event.address()) {
                    self.batch.raise_floor(&address, floor)?;
                }
                let standing = Standing::Gone { reason, cause: Some(cause), since: self.batch.stamp() };
                self.batch.remember(admitted, standing, None)?;
                decision::repeat(event, reason.state(), self.now).map_or(Outcome::Duplicate, Outcome::Refused)
            }
        };
        self.batch.leave_traces(&traces)?;
        self.batch.update_stages()?;
        self.applied.push(admitted.clone());
        Ok(outcome)
    }

    /// Traces, each in the topics of the event it is about: which may be about to go.
    fn placed(&mut self, admitted: &Admitted, traces: Vec<(EventId, Trace)>) -> Result<Vec<(TopicId, Trace)>> {
        let mut placed = Vec::new();
        // An event may have two, one after the other.
        let (mut last, mut topics) = (admitted.event().id, admitted.topics().to_vec());
        for (id, trace) in traces {
            if id != last {
                let no = self.batch.known_id(&id)?.and_then(|known| known.no);
                let row = no.map(|no| self.batch.row(no)).transpose()?.flatten();
                topics = row.map(|row| self.batch.topics_reached(&row)).transpose()?.unwrap_or_default();
                last = id;
            }
            placed.extend(topics.iter().map(|topic| (topic.clone(), trace.clone())));
        }
        Ok(placed)
    }

    fn take_away(&mut self, id: &EventId, reason: Reason, cause: EventId) -> Result<()> {
        let Some(no) = self.batch.known_id(id)?.and_then(|known| known.no) else { return Ok(()) };
        match self.batch.row(no)? {
            Some(row) => self.batch.take_away(row, reason, Some(cause)),
            None => Ok(()),
        }
    }

    fn record(&mut self, tombstone: Tombstone) -> Result<()> {
        let key = key::tombstone(&tombstone.target.target, &tombstone.target.requester_pubkey);
        let merged = match self.batch.get(Table::Tombstones, &key)? {
            Some(known) => tombstone.merged_with(TombstoneRecord::unpack(known)?.tombstone),
            None => tombstone,
        };
        let record = TombstoneRecord { tombstone: merged, noted_at: self.batch.stamp() };
        self.batch.put(Table::Tombstones, &key, &record.pack())
    }

    /// Leaves the mark, and takes away every row it covers (D-12). Returns the topics that lost something.
    fn vanish(&mut self, mark: VanishMark) -> Result<BTreeSet<TopicId>> {
        let known = self.batch.get(Table::Vanished, mark.pubkey.as_bytes())?.map(VanishRecord::unpack).transpose()?;
        if known.is_some_and(|known| known.mark.until >= mark.until) {
            // Everything it covers is gone already, and kept out.
            return Ok(BTreeSet::new());
        }
        let record = VanishRecord { mark, noted_at: self.batch.stamp() };
        self.batch.put(Table::Vanished, mark.pubkey.as_bytes(), &record.pack())?;
        let mut topics = BTreeSet::new();
        for no in self.rows_owned_by(&mark)? {
            let Some(row) = self.batch.row(no)? else { continue };
            if mark.covers(&row.event) {
                // Where a request that vanishes was told of, the one that takes it away has to be.
                topics.extend(self.batch.topics_reached(&row)?);
                self.batch.take_away(row, Reason::Vanish, Some(mark.request_id))?;
            }
        }
        Ok(topics)
    }

    /// Rows of the mark's author, gift wraps for them, and what is hidden of either, up to the mark's time.
    fn rows_owned_by(&self, mark: &VanishMark) -> Result<Vec<EventNo>> {
        let mut numbers = numbers_under(&self.batch, Table::Hidden, &key::hidden_of(&mark.pubkey))?;
        if let Some(author) = self.batch.get(Table::Authors, mark.pubkey.as_bytes())? {
            let author = AuthorNo(Unpack::new("authors", author).u32()?);
            self.indexed_until(mark, Table::ByAuthor, &prefix::author(author), |_| true, &mut numbers)?;
        }
        let recipient = prefix::tag(Letter::P, &mark.pubkey.to_string());
        self.indexed_until(mark, Table::ByTag, &recipient, |cover| cover.kind == Kind::GIFT_WRAP, &mut numbers)?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    fn indexed_until(
        &self,
        mark: &VanishMark,
        table: Table,
        prefix: &[u8],
        wanted: impl Fn(&Cover) -> bool,
        numbers: &mut Vec<EventNo>,
    ) -> Result<()> {
        let entries = self.batch.around.tables.of(table).prefix_iter(&self.batch.txn, prefix).map_err(engine)?;
        for entry in entries {
            let (key, cover) = entry.map_err(engine)?;
            let Some(order) = Order::of_key(key) else { continue };
            if order.created_at() <= mark.until && wanted(&Cover::unpack(cover)?) {
                numbers.push(order.no());
            }
        }
        Ok(())
    }
}

/// The row numbers at the end of the keys that start so.
fn numbers_under(batch: &Batch<'_>, table: Table, prefix: &[u8]) -> Result<Vec<EventNo>> {
    let mut numbers = Vec::new();
    for entry in batch.around.tables.of(table).prefix_iter(&batch.txn, prefix).map_err(engine)? {
        let (key, _) = entry.map_err(engine)?;
        numbers.push(EventNo::of_key(key)?);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use kukuri_store::{
        Store,
        conformance::{
            build::{NOW, admitted, note},
            faults::Faults,
        },
    };

    use super::*;
    use crate::{LmdbOptions, LmdbStore, Sync};

    #[test]
    fn an_event_that_can_not_be_stored_is_refused_alone_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { sync: Sync::Off, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let events: Vec<_> = (0..6).map(|n| note(&format!("note {n}")).at(n).build()).collect();
        let faults = Faults { failing: vec![events[1].id], panicking: vec![events[4].id] };
        store.with_writer(move |writer| {
            writer.faults = faults;
        });

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // What shares its transaction is acknowledged already, and stays.
            let earlier = note("earlier").build();
            store.ingest(vec![admitted(&earlier)], NOW).await.unwrap();
            let batch = events.iter().map(admitted).collect();
            let ingested = store.ingest(batch, NOW).await.unwrap();
            assert!(store.get(&[earlier.id], NOW).await.unwrap()[0].is_some());
            let refused = Outcome::Refused(Refusal::Failed);
            let stored = Outcome::Stored;
            let expected = [&stored, &refused, &stored, &stored, &refused, &stored];
            assert_eq!(ingested.outcomes.iter().collect::<Vec<_>>(), expected);
            assert_eq!(store.stats().await.unwrap().failed, 2);
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());

            // It left no trace, and comes in once what was wrong is right again (E-9).
            store.with_writer(|writer| writer.faults = Faults::default());
            let again = store.ingest(vec![admitted(&events[1]), admitted(&events[4])], NOW).await.unwrap();
            assert_eq!(again.outcomes, [Outcome::Stored, Outcome::Stored]);
        });
    }
}
