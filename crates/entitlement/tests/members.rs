//! Who may read and publish where clients have to authenticate (S-5), and who may not anywhere (A-6).
#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

use std::{sync::Arc, time::Duration};

use kukuri_control::{
    Control, Database,
    actions::{Ban, LiftBan},
    audit::Actor,
    consent::{self, Acceptance},
    metric::Metric,
    plan,
    policy::{self, PolicyType, PolicyVersion},
    request::{self, NewRequest, RequestLimits},
    sign_in, subscription, usage,
};
use kukuri_domain::{
    Admission, Event, Filter, Millis, PublicKey, Refusal, RelayUrls, Timestamp, TopicId,
    subscription::SubscriptionChange,
};
use kukuri_engine::{
    Client, Engine, EngineConfig, EngineParts, PublishRefused, ReadKind, clock,
    config::{Auth, TopicIntake},
    intake::Submitted,
    live::client_queue,
};
use kukuri_entitlement::{BanPolicy, MemberPolicy, QuotaPolicy};
use kukuri_store::{
    StoreRules,
    conformance::build::{note, topic},
    model::ModelStore,
    port::Topics,
};

const TERMS: &str = "# Terms";

struct Node {
    engine: Arc<Engine>,
    control: Arc<Control>,
    _directory: tempfile::TempDir,
}

fn person(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32])
}

fn now() -> Timestamp {
    clock::now().seconds()
}

impl Node {
    /// A node with a topic of its operator, published terms, and this setting of authentication.
    async fn start(auth: Auth) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open_sqlite(&directory.path().join("control.db")).await.unwrap();
        let control = Arc::new(Control::open(database, now()).await.unwrap());
        let mut transaction = control.database().begin().await.unwrap();
        policy::draft(&mut transaction, &terms(), "en", TERMS, now()).await.unwrap();
        policy::publish(&mut transaction, &terms(), None, now()).await.unwrap();
        transaction.commit().await.unwrap();
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        store.change_subscription(&topic(), SubscriptionChange::enable(), clock::now()).await.unwrap();
        let parts = EngineParts {
            store,
            finder: None,
            config: EngineConfig {
                admission: Admission { relay_urls: RelayUrls::new(&["wss://node.example"]), ..Admission::default() },
                auth,
                topics: TopicIntake::Closed,
                ..EngineConfig::default()
            },
            policies: vec![
                Box::new(BanPolicy(Arc::clone(&control))),
                Box::new(MemberPolicy(Arc::clone(&control))),
                Box::new(QuotaPolicy::new(Arc::clone(&control))),
            ],
            recorder: Arc::new(metrics::NoopRecorder),
        };
        let (engine, _writer) = Engine::start(parts).await.unwrap();
        Self { engine, control, _directory: directory }
    }

    async fn join(&self, person: &PublicKey) {
        let secrets = self.control.secrets();
        sign_in::first_visit(self.control.database(), &secrets, person, None, now()).await.unwrap();
        self.refresh().await;
    }

    async fn accept(&self, person: &PublicKey) {
        let content_hash = policy::read(self.control.database(), &terms(), None).await.unwrap().unwrap().0.content_hash;
        let accepted = [Acceptance { of: terms(), content_hash }];
        consent::accept(self.control.database(), person, &accepted, now()).await.unwrap();
        self.refresh().await;
    }

    async fn subscribe(&self, person: &PublicKey) {
        let asked = NewRequest { topic: topic(), topic_name: None, services: vec![], reason: None };
        let (database, limits) = (self.control.database(), RequestLimits::default());
        let request = request::create(database, person, &asked, limits, now()).await.unwrap();
        let mut transaction = database.begin().await.unwrap();
        let secrets = self.control.secrets();
        request::approve(&mut transaction, &secrets, &request.id, None, "command", limits, now()).await.unwrap();
        transaction.commit().await.unwrap();
        self.refresh().await;
    }

    async fn set_limit(&self, metric: Metric, limit: Option<u64>) {
        let mut transaction = self.control.database().begin().await.unwrap();
        plan::set_limit(&mut transaction, plan::FREE, metric, limit, now()).await.unwrap();
        transaction.commit().await.unwrap();
        self.refresh().await;
    }

    /// What was counted for a person today, after it is written.
    async fn used(&self, person: &PublicKey, metric: Metric) -> u64 {
        self.control.write_member_usage(now()).await.unwrap();
        let used = usage::of_day(self.control.database(), person, now()).await.unwrap();
        used.get(&metric).copied().unwrap_or_default()
    }

    async fn refresh(&self) {
        self.control.refresh(now()).await.unwrap();
    }

    /// How a REQ is answered: "ok", or the reason up to its second colon or its URL.
    fn read(&self, client: &Client, filter: &str) -> String {
        let filter = Filter::from_json(filter).unwrap();
        let answer = self.engine.reads().check(client, ReadKind::Recent, &[filter]);
        answer.map_or_else(|refused| shortened(&refused.to_string()), |()| "ok".to_owned())
    }

    async fn publish(&self, client: &Client, event: &Event) -> String {
        let (queue, _receiver) = client_queue();
        let json = event.to_json();
        let submitted = self.engine.intake().submit_event(std::str::from_utf8(&json).unwrap(), client, &queue).await;
        match submitted {
            // Its signature is not a real one: what comes as far as that was not refused by a policy.
            Submitted::Answered(Err(PublishRefused::Rule(Refusal::WrongSignature))) => "ok".to_owned(),
            Submitted::Answered(Err(refused)) => shortened(&refused.to_string()),
            answered => panic!("{answered:?}"),
        }
    }
}

fn terms() -> PolicyVersion {
    PolicyVersion::new(PolicyType::Terms, "1").unwrap()
}

fn shortened(text: &str) -> String {
    let text = text.split(" http").next().unwrap_or(text);
    text.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ")
}

fn client(keys: &[PublicKey], connected_at: Millis) -> Client {
    Client { ip: [127, 0, 0, 1].into(), keys: keys.into(), connected_at }
}

fn required() -> Auth {
    Auth::Required { enforce_at: Millis(0), grace: Duration::ZERO, timeout: Duration::from_secs(10) }
}

fn of_topic(topic: &TopicId) -> String {
    format!(r##"{{"#t":["{topic}"]}}"##)
}

#[tokio::test]
async fn each_step_to_membership_is_asked_for_on_reads_and_writes() {
    // S-5
    let node = Node::start(required()).await;
    let me = client(&[person(1)], clock::now());
    let (own, global) = (of_topic(&topic()), of_topic(&TopicId::global()));
    let event = note("a note").build();
    let expect = async |reason: &str, of_global: &str| {
        assert_eq!(node.read(&me, &own), reason);
        assert_eq!(node.publish(&me, &event).await, reason);
        assert_eq!(node.read(&me, &global), of_global);
    };
    expect("restricted: account required", "restricted: account required").await;
    node.join(&person(1)).await;
    expect("restricted: consent required", "restricted: consent required").await;
    node.accept(&person(1)).await;
    expect("restricted: subscription required", "ok").await;
    node.subscribe(&person(1)).await;
    expect("ok", "ok").await;
    assert_eq!(node.read(&me, &format!(r##"{{"#t":["{}","{}"]}}"##, topic(), TopicId::global())), "ok");
    let other = format!("kukuri:{}", "9".repeat(64));
    assert_eq!(
        node.read(&me, &format!(r##"{{"#t":["{}","{other}"]}}"##, topic())),
        "restricted: subscription required"
    );
    subscription::end(node.control.database(), &person(1), &topic(), now()).await.unwrap();
    node.refresh().await;
    expect("restricted: subscription required", "ok").await;
}

#[tokio::test]
async fn one_of_several_keys_is_enough_but_it_has_to_do_all() {
    let node = Node::start(required()).await;
    for number in [1, 2] {
        node.join(&person(number)).await;
        node.accept(&person(number)).await;
    }
    node.subscribe(&person(1)).await;
    let both = client(&[person(1), person(2)], clock::now());
    assert_eq!(node.read(&both, &of_topic(&topic())), "ok");
    assert_eq!(
        node.read(&client(&[person(2)], clock::now()), &of_topic(&topic())),
        "restricted: subscription required"
    );
}

#[tokio::test]
async fn nobody_is_asked_before_enforcement_or_within_the_grace_of_an_old_connection() {
    // A-7
    let soon = clock::now().after(Duration::from_secs(3_600));
    for auth in [
        Auth::Off,
        Auth::Required { enforce_at: soon, grace: Duration::from_secs(900), timeout: Duration::from_secs(10) },
        Auth::Required { enforce_at: clock::now(), grace: Duration::from_secs(900), timeout: Duration::from_secs(10) },
    ] {
        let node = Node::start(auth).await;
        let old = clock::now().before(Duration::from_secs(60));
        for keys in [&[person(1)][..], &[]] {
            assert_eq!(node.read(&client(keys, old), &of_topic(&topic())), "ok", "{auth:?}");
        }
    }
}

#[tokio::test]
async fn author_can_take_back_what_is_theirs_without_a_subscription() {
    let node = Node::start(required()).await;
    node.join(&person(1)).await;
    let me = client(&[person(1)], clock::now());
    let request = kukuri_store::conformance::build::deletion().of(&note("a note").build()).build();
    assert_eq!(node.publish(&me, &request).await, "ok");
}

#[tokio::test]
async fn ban_holds_in_any_mode_for_events_of_the_author_and_its_connections() {
    // A-6
    let node = Node::start(Auth::Off).await;
    let event = note("a note").build();
    let author = event.pubkey;
    let stranger = client(&[], clock::now());
    assert_eq!(node.publish(&stranger, &event).await, "ok");
    let ban = Ban { pubkey: author, reason: "spam".to_owned(), until: None };
    node.control.perform(&ban, &Actor::command(), now()).await.unwrap();
    assert!(node.publish(&stranger, &event).await.starts_with("blocked: this node does not serve this key"));
    assert!(node.engine.check_client(&client(&[author], clock::now())).is_err());
    assert!(node.engine.check_key(&author).is_err());
    assert!(node.engine.check_client(&stranger).is_ok());
    node.control.perform(&LiftBan { pubkey: author }, &Actor::command(), now()).await.unwrap();
    assert_eq!(node.publish(&stranger, &event).await, "ok");
}

/// A REQ that pages back, a COUNT, or a NEG-OPEN.
fn history(node: &Node, client: &Client, filters: &[&str]) -> String {
    let filters: Vec<Filter> = filters.iter().map(|filter| Filter::from_json(filter).unwrap()).collect();
    let answer = node.engine.reads().check(client, ReadKind::History, &filters);
    answer.map_or_else(|refused| shortened(&refused.to_string()), |()| "ok".to_owned())
}

#[tokio::test]
async fn requests_for_history_and_searches_are_counted_by_the_last_key_up_to_the_plan() {
    // Q-1, Q-2, S-5
    let node = Node::start(required()).await;
    for number in [1, 2] {
        node.join(&person(number)).await;
        node.accept(&person(number)).await;
    }
    node.set_limit(Metric::BackfillRequests, Some(2)).await;
    node.set_limit(Metric::SearchRequests, Some(3)).await;
    let client = client(&[person(1), person(2), person(9)], clock::now());
    let (page, search) = (of_topic(&TopicId::global()), r##"{"#t":["kukuri:global"],"search":"tea"}"##);
    for _ in 0..9 {
        assert_eq!(node.read(&client, &page), "ok", "what is new is not counted");
    }
    assert_eq!(history(&node, &client, &[&page, &page]), "ok");
    assert_eq!(history(&node, &client, &[search, search]), "ok");
    assert_eq!(history(&node, &client, &[&page, search]), "ok");
    for (filters, why) in [(&page[..], "history"), (search, "searches")] {
        let refused = history(&node, &client, &[filters]);
        assert!(
            refused.starts_with("restricted: quota exceeded until 2") && refused.ends_with("T00:00:00Z"),
            "{why}: {refused}"
        );
    }
    for (number, expected) in [(1, (0, 0)), (2, (2, 3)), (9, (0, 0))] {
        let used = (
            node.used(&person(number), Metric::BackfillRequests).await,
            node.used(&person(number), Metric::SearchRequests).await,
        );
        assert_eq!(used, expected, "{number}: the last key with an account");
    }
    node.set_limit(Metric::BackfillRequests, None).await;
    assert_eq!(history(&node, &client, &[&page]), "ok");
    assert_eq!(node.used(&person(2), Metric::BackfillRequests).await, 2, "an unlimited plan is not counted");
}

#[tokio::test]
async fn key_that_may_not_itself_is_not_charged_for_one_that_may() {
    // Q-2: a fresh account on the same connection is no way around a plan.
    let node = Node::start(required()).await;
    for number in [1, 2] {
        node.join(&person(number)).await;
        node.accept(&person(number)).await;
    }
    node.subscribe(&person(1)).await;
    node.set_limit(Metric::BackfillRequests, Some(2)).await;
    let client = client(&[person(1), person(2)], clock::now());
    let page = of_topic(&topic());
    for expected in ["ok", "ok"] {
        assert_eq!(history(&node, &client, &[&page]), expected);
    }
    assert!(history(&node, &client, &[&page]).starts_with("restricted: quota exceeded until "));
    let used =
        [node.used(&person(1), Metric::BackfillRequests).await, node.used(&person(2), Metric::BackfillRequests).await];
    assert_eq!(used, [2, 0]);
}

#[tokio::test]
async fn nothing_is_counted_while_everybody_is_served() {
    // S-5
    let node = Node::start(Auth::Off).await;
    node.join(&person(1)).await;
    node.set_limit(Metric::BackfillRequests, Some(0)).await;
    assert_eq!(history(&node, &client(&[person(1)], clock::now()), &[&of_topic(&topic())]), "ok");
    assert_eq!(node.used(&person(1), Metric::BackfillRequests).await, 0);
}
