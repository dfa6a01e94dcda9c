//! Random stories of concurrent callers, compared with a model that is obviously right: who asks for what, what is approved twice at
//! a time, what is ended, which processes die in the middle. On both databases.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_control::{
    Refused,
    people::People,
    request::{self, NewRequest, RequestLimits, RequestStatus, Service},
    subscription,
};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};

use crate::support::{Control, START, person, topic};

const LIMITS: RequestLimits = RequestLimits { pending_per_person: 2, topics: 3 };
const PEOPLE: u8 = 3;
const TOPICS: u8 = 4;

#[derive(Clone, Debug)]
enum Step {
    Ask(u8, u8),
    /// Approvals of the n-th request at the same time, and whether the first caller dies before its commit.
    Approve {
        nth: usize,
        at_once: usize,
        dies: bool,
    },
    Reject(usize),
    Cancel(u8, usize),
    End(u8, u8),
    TakenIn(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 1..=PEOPLE;
    prop_oneof![
        4 => (who.clone(), 1..=TOPICS).prop_map(|(who, topic)| Step::Ask(who, topic)),
        4 => (0..12usize, 1..=3usize, any::<bool>())
            .prop_map(|(nth, at_once, dies)| Step::Approve { nth, at_once, dies }),
        1 => (0..12usize).prop_map(Step::Reject),
        1 => (who.clone(), 0..12usize).prop_map(|(who, nth)| Step::Cancel(who, nth)),
        2 => (who, 1..=TOPICS).prop_map(|(who, topic)| Step::End(who, topic)),
        1 => (1..=TOPICS).prop_map(Step::TakenIn),
    ]
}

/// What there is, by the rules S-4 and S-6.
#[derive(Default)]
struct Model {
    /// Requests in the order in which they were made: person, topic, status.
    requests: Vec<(u8, u8, RequestStatus)>,
    ids: Vec<String>,
    subscribed: BTreeSet<(u8, u8)>,
}

impl Model {
    fn pending(&self, who: u8) -> usize {
        self.requests.iter().filter(|(of, _, status)| *of == who && *status == RequestStatus::Pending).count()
    }

    fn topics(&self) -> BTreeMap<u8, u64> {
        let mut topics = BTreeMap::new();
        self.subscribed.iter().for_each(|(_, topic)| *topics.entry(*topic).or_default() += 1);
        topics
    }

    fn topics_of(&self, who: u8) -> usize {
        self.subscribed.iter().filter(|(of, _)| *of == who).count()
    }

    /// Whether the node carries the topic, or has room for another one.
    fn has_room(&self, topic: u8) -> bool {
        let topics = self.topics();
        topics.contains_key(&topic) || topics.len() < LIMITS.topics as usize
    }

    /// The free plan has one topic.
    fn may_subscribe(&self, who: u8, topic: u8) -> bool {
        self.topics_of(who) < 1 && self.has_room(topic)
    }
}

async fn play(control: &Control, model: &mut Model, step: &Step) {
    let database = &control.database;
    match *step {
        Step::Ask(who, number) => {
            let asked = NewRequest { topic: topic(number), topic_name: None, services: vec![], reason: None };
            let answer = request::create(database, &person(who), &asked, LIMITS, START).await;
            let is_pending = model.requests.contains(&(who, number, RequestStatus::Pending));
            let is_subscribed = model.subscribed.contains(&(who, number));
            match answer {
                Ok(request) if is_pending || is_subscribed => {
                    assert!(model.ids.contains(&request.id), "the known one is returned");
                }
                Ok(request) => {
                    assert!(model.pending(who) < 2 && model.may_subscribe(who, number), "{step:?}");
                    model.requests.push((who, number, RequestStatus::Pending));
                    model.ids.push(request.id);
                }
                Err(Refused::TooManyPendingRequests { .. }) => assert_eq!(model.pending(who), 2),
                Err(Refused::TooManyTopics { .. }) => assert!(!model.has_room(number), "{step:?}"),
                Err(Refused::QuotaExceeded { .. }) => assert_eq!(model.topics_of(who), 1),
                Err(refused) => panic!("{step:?}: {refused}"),
            }
        }
        Step::Approve { nth, at_once, dies } => {
            let Some(id) = model.ids.get(nth) else { return };
            if dies {
                let mut transaction = control.begin().await;
                let secrets = &control.secrets;
                let _ = request::approve(&mut transaction, secrets, id, None, "command", LIMITS, START).await;
                drop(transaction);
            }
            let one = || async {
                let mut transaction = control.begin().await;
                let secrets = &control.secrets;
                request::approve(&mut transaction, secrets, id, None, "command", LIMITS, START).await?;
                transaction.commit().await.unwrap();
                Ok::<_, Refused>(())
            };
            let mut approved = 0;
            let calls: Vec<_> = match at_once {
                1 => vec![one().await],
                2 => <[_; 2]>::from(tokio::join!(one(), one())).into(),
                _ => <[_; 3]>::from(tokio::join!(one(), one(), one())).into(),
            };
            for answer in calls {
                approved += usize::from(answer.is_ok());
            }
            let (who, number, status) = model.requests[nth];
            let expected = status == RequestStatus::Pending && model.may_subscribe(who, number);
            assert_eq!(approved, usize::from(expected), "{step:?}");
            if expected {
                model.requests[nth].2 = RequestStatus::Approved;
                model.subscribed.insert((who, number));
            }
        }
        Step::Reject(nth) => {
            let Some(id) = model.ids.get(nth) else { return };
            let mut transaction = control.begin().await;
            let rejected = request::reject(&mut transaction, id, None, "command", START).await.is_ok();
            transaction.commit().await.unwrap();
            assert_eq!(rejected, model.requests[nth].2 == RequestStatus::Pending);
            if rejected {
                model.requests[nth].2 = RequestStatus::Rejected;
            }
        }
        Step::Cancel(who, nth) => {
            let Some(id) = model.ids.get(nth) else { return };
            let cancelled = request::cancel(database, &person(who), id, START).await.is_ok();
            let (of, _, status) = model.requests[nth];
            assert_eq!(cancelled, of == who && status == RequestStatus::Pending);
            if cancelled {
                model.requests[nth].2 = RequestStatus::Cancelled;
            }
        }
        Step::End(who, number) => {
            let ended = subscription::end(database, &person(who), &topic(number), START).await.is_ok();
            assert_eq!(ended, model.subscribed.remove(&(who, number)));
            for (_, _, status) in model.requests.iter_mut().filter(|(of, on, _)| ended && (*of, *on) == (who, number)) {
                if *status == RequestStatus::Approved {
                    *status = RequestStatus::Cancelled;
                }
            }
        }
        Step::TakenIn(number) => {
            request::taken_in(database, &topic(number)).await.unwrap();
            for (_, of, status) in &mut model.requests {
                if *of == number && *status == RequestStatus::Approved {
                    *status = RequestStatus::Active;
                }
            }
        }
    }
}

/// The database, and what memory has of it, are as the model says.
async fn compare(control: &Control, model: &Model, people: &People) {
    for (nth, id) in model.ids.iter().enumerate() {
        let found = request::find(&control.database, id).await.unwrap().unwrap();
        assert_eq!(found.status, model.requests[nth].2, "request {nth}");
    }
    let wanted = subscription::wanted(&control.database, START).await.unwrap();
    let expected: BTreeMap<_, _> = model.topics().into_iter().map(|(number, count)| (topic(number), count)).collect();
    assert_eq!(wanted, expected);
    people.refresh(&control.database, START).await.unwrap();
    let fresh = control.people(START).await;
    for (who, number) in (1..=PEOPLE).flat_map(|who| (1..=TOPICS).map(move |number| (who, number))) {
        for (what, people) in [("refreshed", people), ("loaded anew", &fresh)] {
            let found = people.is_subscribed(&person(who), &topic(number), Service::Relay);
            assert_eq!(found, model.subscribed.contains(&(who, number)), "{what}: person {who}, topic {number}");
        }
    }
}

async fn stories(control: impl AsyncFn() -> Control, cases: u32) {
    let mut runner = TestRunner::new(Config::default());
    for _ in 0..cases {
        let steps = prop::collection::vec(step(), 1..40).new_tree(&mut runner).unwrap().current();
        let control = control().await;
        for number in 1..=PEOPLE {
            control.join(&person(number)).await;
        }
        let people = control.people(START).await;
        let mut model = Model::default();
        for step in &steps {
            play(&control, &mut model, step).await;
        }
        compare(&control, &model, &people).await;
        control.database.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_many_end_as_the_model_says_on_sqlite() {
    stories(Control::on_sqlite, kukuri_testing::long::scaled(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_many_end_as_the_model_says_on_postgres() {
    stories(Control::on_postgres, kukuri_testing::long::scaled(8)).await;
}
