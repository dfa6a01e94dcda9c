//! The seam between stored and live events (W-2): no event is missed or repeated, whatever is written meanwhile.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use crate::support::{
    Client, Dice, Draft, PATIENCE, TOPIC, TestRelay, as_json, draft, id_of, key_of, note, now, topic,
};
use kukuri_domain::{Event, Filter, Millis, TopicId, topic::TopicsMode};
use kukuri_store::{Op, Seq};
use serde_json::{Value, json};
use tokio::sync::Barrier;

/// Events of each author, and steps of each reader.
const EVENTS: usize = 200;
const STEPS: usize = 40;
/// All authors and readers begin each round together, so that neither get far ahead of the others.
const ROUNDS: usize = 10;
const READERS: u64 = 4;
const AUTHORS: [u8; 2] = [1, 2];
const KINDS: [u16; 5] = [1, 7, 0, 10_002, 30_023];

/// The events that a subscription received, and whether it was open until the end of the test.
struct Watched {
    filters: Vec<Value>,
    stored: Vec<String>,
    live: Vec<String>,
    is_stored_over: bool,
    is_to_the_end: bool,
}

/// A random event of one author, who also replaces, deletes, and sometimes vanishes.
fn random_event(dice: &mut Dice, author: u8, number: usize, start: u64, own: &[Event], url: &str) -> Event {
    let bound = |mut draft: Draft, dice: &mut Dice| {
        for number in 1..=3 {
            if number == 1 || dice.roll(3) == 0 {
                draft = draft.tag(["t", &topic(number)]);
            }
        }
        draft.at(start + dice.roll(50)).content(&number.to_string())
    };
    let event = match dice.roll(80) {
        0 => bound(draft(author, 62).tag(["relay", url]), dice).at(start + dice.roll(20)),
        1..=12 if !own.is_empty() => bound(draft(author, 5).tag(["e", &id_of(dice.pick(own))]), dice),
        13..=15 => bound(draft(author, 5).tag(["a", &format!("30023:{}:{}", key_of(author), dice.roll(3))]), dice),
        16..=45 => {
            let kind = *dice.pick(&KINDS[2..]);
            bound(draft(author, kind).tag(["d", &dice.roll(3).to_string()]), dice)
        }
        _ => bound(draft(author, *dice.pick(&KINDS[..2])).tag(["p", &key_of(*dice.pick(&AUTHORS))]), dice),
    };
    event.sign()
}

fn random_filter(dice: &mut Dice, start: u64) -> Value {
    let mut filter = json!({"#t": [topic(1 + dice.roll(3) as u8)]});
    let mut sometimes = |name: &str, odds: u64, value: fn(&mut Dice, u64) -> Value| {
        if dice.roll(odds) == 0 {
            filter[name] = value(dice, start);
        }
    };
    sometimes("kinds", 3, |dice, _| json!([dice.pick(&KINDS), dice.pick(&KINDS), 5]));
    sometimes("authors", 4, |dice, _| json!([key_of(*dice.pick(&AUTHORS))]));
    sometimes("#p", 6, |dice, _| json!([key_of(*dice.pick(&AUTHORS))]));
    sometimes("since", 6, |dice, start| json!(start + dice.roll(30)));
    sometimes("limit", 4, |dice, _| json!(dice.roll(10)));
    filter
}

async fn write(
    mut client: Client,
    mut dice: Dice,
    author: u8,
    start: u64,
    url: String,
    round: Arc<Barrier>,
) -> Vec<Event> {
    let (mut own, mut rounds): (Vec<Event>, usize) = (Vec::new(), 0);
    while own.len() < EVENTS {
        if own.len() >= rounds * EVENTS / ROUNDS {
            round.wait().await;
            rounds += 1;
        }
        // Batches of random size, so that commits differ in size.
        let together = 1 + dice.roll(8) as usize;
        for _ in 0..together {
            let event = random_event(&mut dice, author, own.len(), start, &own, &url);
            client.say(json!(["EVENT", as_json(&event)])).await;
            own.push(event);
        }
        for _ in 0..together {
            assert_eq!(client.hear().await[0], "OK");
        }
        tokio::time::sleep(Duration::from_millis(dice.roll(4))).await;
    }
    own
}

struct Reader {
    client: Client,
    open: BTreeMap<String, Watched>,
    over: Vec<Watched>,
}

impl Reader {
    /// Records a message; returns whether it is the answer to a COUNT.
    fn note(&mut self, heard: &Value) -> bool {
        if heard[0] == "COUNT" {
            return true;
        }
        let watched = self.open.get_mut(heard[1].as_str().unwrap()).unwrap_or_else(|| panic!("not open: {heard}"));
        match (heard[0].as_str().unwrap(), watched.is_stored_over) {
            ("EVENT", false) => watched.stored.push(heard[2]["id"].as_str().unwrap().to_owned()),
            ("EVENT", true) => watched.live.push(heard[2]["id"].as_str().unwrap().to_owned()),
            ("EOSE", false) => watched.is_stored_over = true,
            _ => panic!("{heard}"),
        }
        false
    }

    async fn listen(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while let Ok(heard) = tokio::time::timeout_at(end, self.client.hear()).await {
            self.note(&heard);
        }
    }

    async fn open(&mut self, id: &str, filters: Vec<Value>) {
        let message: Vec<Value> = [json!("REQ"), json!(id)].into_iter().chain(filters.iter().cloned()).collect();
        self.client.say(json!(message)).await;
        let (stored, live) = (Vec::new(), Vec::new());
        let watched = Watched { filters, stored, live, is_stored_over: false, is_to_the_end: false };
        self.open.insert(id.to_owned(), watched);
    }

    /// Closes a subscription and sends a COUNT: after its answer, nothing more may arrive for the subscription.
    async fn close(&mut self, id: &str) {
        self.client.say(json!(["CLOSE", id])).await;
        self.client.say(json!(["COUNT", "barrier", {"#t": [TOPIC], "kinds": []}])).await;
        loop {
            let heard = self.client.hear().await;
            if self.note(&heard) {
                break;
            }
        }
        self.over.extend(self.open.remove(id));
    }
}

async fn read(client: Client, mut dice: Dice, start: u64, last: String, round: Arc<Barrier>) -> Vec<Watched> {
    let mut reader = Reader { client, open: BTreeMap::new(), over: Vec::new() };
    for step in 0..STEPS {
        if step % (STEPS / ROUNDS) == 0 {
            round.wait().await;
        }
        let id = format!("s{}", dice.roll(6));
        match (dice.roll(3), reader.open.contains_key(&id)) {
            (0, _) => reader.listen(Duration::from_millis(dice.roll(20))).await,
            (_, true) => reader.close(&id).await,
            (_, false) => {
                let mut filters: Vec<Value> = (0..=dice.roll(2)).map(|_| random_filter(&mut dice, start)).collect();
                // Every subscription also matches the last event, which marks the end.
                filters.push(json!({"#t": [TOPIC], "ids": [last]}));
                reader.open(&id, filters).await;
            }
        }
    }
    let has_seen = |watched: &Watched| watched.stored.contains(&last) || watched.live.contains(&last);
    while !reader.open.values().all(has_seen) {
        let heard = reader.client.hear().await;
        reader.note(&heard);
    }
    // Any event after the last one would be a duplicate.
    reader.listen(Duration::from_millis(20)).await;
    let to_the_end = reader.open.into_values().map(|watched| Watched { is_to_the_end: true, ..watched });
    reader.over.into_iter().chain(to_the_end).collect()
}

/// An event's history in the outbox: when it became effective, and when it was removed.
struct Life {
    event: Event,
    topics: Vec<TopicId>,
    began: (Seq, Millis),
    ended: Option<(Seq, Millis)>,
}

async fn lives(relay: &TestRelay, events: Vec<Event>) -> Vec<Life> {
    let mut by_id: HashMap<_, _> = events.into_iter().map(|event| (event.id, event)).collect();
    let mut lives: HashMap<_, Life> = HashMap::new();
    for row in relay.engine.store().outbox(Seq(0), 100_000).await.unwrap() {
        let at = (row.seq, row.written_at);
        if let Some(event) = by_id.remove(&row.event_id) {
            lives.insert(row.event_id, Life { event, topics: Vec::new(), began: at, ended: None });
        }
        let life = lives.get_mut(&row.event_id).unwrap();
        match row.op {
            Op::Upsert => {
                life.topics.push(row.topic);
                life.began = at;
            }
            Op::Delete(_) => life.ended = Some(at),
        }
    }
    let mut lives: Vec<Life> = lives.into_values().collect();
    lives.sort_by_key(|life| life.began);
    lives
}

impl Watched {
    /// Whether an outbox position exists at which the store answers `stored` and after which exactly `live` follows.
    fn is_right(&self, lives: &[Life]) -> bool {
        let filters: Vec<Filter> =
            self.filters.iter().map(|json| Filter::from_json(json.to_string()).unwrap()).collect();
        let matches = |life: &&Life| filters.iter().any(|filter| filter.matches(&life.event, &life.topics));
        let lives: Vec<&Life> = lives.iter().filter(matches).collect();
        let moments = lives.iter().flat_map(|life| [Some(life.began), life.ended]).flatten().map(|(seq, _)| seq);
        let moments: HashSet<Seq> = moments.chain([Seq(0)]).collect();
        moments
            .into_iter()
            .any(|moment| self.stored == answer(&filters, &lives, moment) && self.follows(&lives, moment))
    }

    fn follows(&self, lives: &[&Life], moment: Seq) -> bool {
        let mut live = self.live.iter().peekable();
        for life in lives.iter().filter(|life| life.began.0 > moment) {
            if live.next_if(|id| **id == id_of(&life.event)).is_some() {
                continue;
            }
            if live.peek().is_none() && !self.is_to_the_end {
                return true;
            }
            // An event that one commit both added and removed is not delivered.
            if life.ended.is_none_or(|(_, at)| at != life.began.1) {
                return false;
            }
        }
        live.next().is_none()
    }
}

/// The store's answer at an outbox position (W-1).
fn answer(filters: &[Filter], lives: &[&Life], moment: Seq) -> Vec<String> {
    let is_there = |life: &&&Life| life.began.0 <= moment && life.ended.is_none_or(|(seq, _)| seq > moment);
    let mut there: Vec<&&Life> = lives.iter().filter(is_there).collect();
    there.sort_by_key(|life| (std::cmp::Reverse(life.event.created_at), life.event.id));
    let found: HashSet<_> = filters
        .iter()
        .flat_map(|filter| {
            let matching = there.iter().filter(|life| filter.matches(&life.event, &life.topics));
            matching.take(filter.limit().unwrap_or(usize::MAX)).map(|life| life.event.id)
        })
        .collect();
    there.iter().filter(|life| found.contains(&life.event.id)).map(|life| id_of(&life.event)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_subscription_matches_the_history_in_the_outbox() {
    for seed in 1..=3u64 {
        let relay = TestRelay::start(TopicsMode::Required).await;
        let start = now() - 1_000;
        let last = note(9, "the last one").sign();
        let round = Arc::new(Barrier::new(READERS as usize + AUTHORS.len()));
        let mut readers = Vec::new();
        for number in 0..READERS {
            let dice = Dice::new(seed * 1_000 + number);
            readers.push(tokio::spawn(read(relay.client().await, dice, start, id_of(&last), Arc::clone(&round))));
        }
        let mut writers = Vec::new();
        for author in AUTHORS {
            let dice = Dice::new(seed * 1_000 + 100 + u64::from(author));
            let url = relay.url.clone();
            writers.push(tokio::spawn(write(relay.client().await, dice, author, start, url, Arc::clone(&round))));
        }
        let mut events = vec![last.clone()];
        for writer in writers {
            events.extend(writer.await.unwrap());
        }
        relay.client().await.accepted(&last).await;
        let mut watched = Vec::new();
        for reader in readers {
            watched.extend(tokio::time::timeout(PATIENCE, reader).await.expect("all is seen in the end").unwrap());
        }

        let lives = lives(&relay, events).await;
        let (mut stored, mut live) = (0, 0);
        for one in &watched {
            assert!(one.is_right(&lives), "seed {seed}: {:?}\n{:?}\n{:?}", one.filters, one.stored, one.live);
            stored += one.stored.len();
            live += one.live.len();
        }
        assert!(lives.iter().filter(|life| life.ended.is_some()).count() > 20, "seed {seed}: events came and went");
        assert!(watched.len() > 30 && stored > 200 && live > 200, "seed {seed}: {} {stored} {live}", watched.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_missed_while_a_client_authenticates() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut reader = relay.client().await;
    reader.request("s", &[json!({"#t": [TOPIC]})]).await;
    let events: Vec<Event> = (0..1_500).map(|number| note(1, &number.to_string()).sign()).collect();
    let mut expected: Vec<String> = events.iter().map(id_of).collect();
    let mut writer = relay.client().await;
    let writing = tokio::spawn(async move {
        for event in &events {
            writer.say(json!(["EVENT", as_json(event)])).await;
        }
        for _ in &events {
            assert_eq!(writer.hear().await[2], true);
        }
    });
    let challenge = reader.challenge.clone();
    let answer = |key: u8| draft(key, 22_242).tag(["relay", &relay.url]).tag(["challenge", &challenge]).sign();
    let answers = [1, 2, 3].map(|key| json!(["AUTH", as_json(&answer(key))]));
    let mut found = Vec::new();
    while found.len() < expected.len() {
        let heard = tokio::time::timeout(PATIENCE / 4, reader.hear()).await;
        let heard = heard.unwrap_or_else(|_| panic!("{} of {} have come", found.len(), expected.len()));
        match heard[0].as_str().unwrap() {
            "EVENT" => {
                found.push(heard[2]["id"].as_str().unwrap().to_owned());
                reader.say(answers[found.len() % 3].clone()).await;
            }
            _ => assert_eq!(heard[2], true, "{heard}"),
        }
    }
    writing.await.unwrap();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "nothing is missing, nothing came twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_several_topics_is_delivered_once_even_in_a_large_commit() {
    // The relay reads a commit's outbox rows in pages. Here an event's rows cross the boundary of two pages.
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut reader = relay.client().await;
    reader.request("s", &[json!({"#t": [TOPIC, topic(2), topic(3)]})]).await;
    let in_three = |number: usize| note(1, &number.to_string()).tag(["t", &topic(2)]).tag(["t", &topic(3)]).sign();
    let mut events: Vec<Event> = (0..1_600).map(in_three).collect();
    // This event is removed by the same commit, on the second page.
    let deleted = events[3].clone();
    events.push(draft(1, 5).tag(["t", TOPIC]).tag(["e", &id_of(&deleted)]).sign());
    let texts = events.iter().map(|event| as_json(event).to_string().into_bytes()).collect();
    assert!(relay.engine.import(texts).await.iter().all(Result::is_ok));
    let last = note(1, "the last one").sign();
    relay.client().await.accepted(&last).await;
    let mut found = Vec::new();
    while found.last() != Some(&id_of(&last)) {
        found.push(reader.hear().await[2]["id"].as_str().unwrap().to_owned());
    }
    let gone = id_of(&deleted);
    let expected: Vec<String> = events.iter().chain([&last]).map(id_of).filter(|id| *id != gone).collect();
    assert_eq!(found, expected);
}
