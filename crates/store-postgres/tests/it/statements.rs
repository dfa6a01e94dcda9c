//! The number of SQL statements of a batch does not depend on its size.

use std::fs;

use kukuri_domain::{Event, PublicKey};
use kukuri_store::{
    Outcome,
    conformance::build::{NOW, OTHER_TOPIC, admitted, article, deletion, event, note, profile, vanish},
    port::*,
};
use kukuri_store_postgres::PostgresStore;

use crate::{
    patient,
    support::{block_on, cluster::Cluster, private},
};

/// Makes the server log every statement as a line that begins with the process id of its session.
const LOGGED: &str = "-c log_statement=all -c log_line_prefix='%p>'";
/// The first statement of a write transaction.
const BEGIN: &str = "LOCK TABLE cn_relay.writers_lock";

fn author(round: u64, number: u64) -> PublicKey {
    let mut bytes = [3; 32];
    bytes[..8].copy_from_slice(&round.to_be_bytes());
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    PublicKey::from_bytes(bytes)
}

/// The events of an author before the batch.
fn before(author: PublicKey) -> Vec<Event> {
    vec![
        note("to be deleted").by(author).build(),
        profile("first").by(author).build(),
        article("deleted", "first").by(author).build(),
        article("replaced", "first").by(author).build(),
    ]
}

/// One event of each class, and of each kind of request.
fn batch(author: PublicKey, leaving: PublicKey) -> Vec<Event> {
    let earlier = before(author);
    vec![
        note("in two topics").by(author).tag(["t", OTHER_TOPIC]).tag(["r", "link"]).build(),
        note("of some time").by(author).until(1_000).build(),
        event(20_001).by(author).build(),
        event(1059).by(author).tag(["p", &leaving.to_string()]).at(10).build(),
        profile("second").by(author).at(1).build(),
        article("replaced", "second").by(author).at(1).build(),
        deletion().by(author).of(&earlier[0]).at(5).build(),
        deletion().by(author).of_key(&earlier[2]).at(5).build(),
        vanish().by(leaving).at(5).build(),
        earlier[1].clone(),
    ]
}

/// The statements of the last write transaction in a log, in order.
fn last_batch(log: &str) -> Vec<&str> {
    let statements = log.lines().filter_map(|line| {
        let (process, said) = line.split_once('>')?;
        let is_statement = said.starts_with("LOG:  statement: ") || said.starts_with("LOG:  execute ");
        is_statement.then_some((process, said.split_once(": ")?.1))
    });
    let statements: Vec<_> = statements.collect();
    let begin = statements.iter().rposition(|(_, statement)| statement.contains(BEGIN)).unwrap();
    let writer = statements[begin].0;
    statements[begin..].iter().filter(|(process, _)| *process == writer).map(|(_, statement)| *statement).collect()
}

#[test]
fn the_number_of_statements_does_not_depend_on_the_batch_size() {
    let cluster = Cluster::at(private(&format!("postgres-logged-{}", std::process::id()))).with(LOGGED);
    cluster.start().unwrap();
    block_on(async {
        let store = PostgresStore::connect(&cluster.url(), patient()).await.unwrap();
        let mut taken = Vec::new();
        // Round 0 also prepares statements and looks up types; it is not compared.
        for (round, authors) in [(0, 1), (1, 1), (2, 100)] {
            let of = |number| (author(round, number), author(round, 1_000 + number));
            let earlier = (0..authors).flat_map(|number| {
                let (one, leaving) = of(number);
                before(one).into_iter().chain([note("of one who leaves").by(leaving).build()])
            });
            store.ingest(earlier.map(|event| admitted(&event)).collect(), NOW).await.unwrap();
            let events: Vec<_> = (0..authors).flat_map(|number| batch(of(number).0, of(number).1)).collect();
            let outcomes = store.ingest(events.iter().map(admitted).collect(), NOW).await.unwrap().outcomes;
            assert_eq!(outcomes.len() as u64, 10 * authors);
            let refused = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Refused(_))).count() as u64;
            assert_eq!(refused, authors, "the copy of what was just replaced");
            let log = fs::read_to_string(cluster.directory().join("log")).unwrap();
            taken.push(last_batch(&log).into_iter().map(str::to_owned).collect::<Vec<_>>());
        }
        let [_, ten, thousand] = taken.as_slice() else { panic!() };
        assert_eq!(ten.len(), thousand.len(), "{ten:#?} for ten, {thousand:#?} for a thousand");
        assert!((10..60).contains(&ten.len()), "{ten:#?}");
    });
    cluster.stop("immediate").unwrap();
    cluster.remove();
}
