//! Asking for topics and subscribing to them (S-1 to S-7).

use kukuri_control::{
    Refused,
    account::{self, AccountStatus},
    ban,
    metric::Metric,
    plan,
    request::{self, NewRequest, RequestLimits, RequestStatus, Service, TopicRequest},
    subscription,
};
use kukuri_domain::PublicKey;

use crate::support::{Control, START, later, name, on_both, person, topic};

const LIMITS: RequestLimits = RequestLimits { pending_per_person: 2, topics: 3 };

async fn ask(control: &Control, who: &PublicKey, number: u8) -> Result<TopicRequest, Refused> {
    let asked = NewRequest {
        topic: topic(number),
        topic_name: None,
        services: vec![Service::Index],
        reason: Some("tea".to_owned()),
    };
    request::create(&control.database, who, &asked, LIMITS, START).await
}

async fn approve(control: &Control, id: &str) -> Result<TopicRequest, Refused> {
    let mut transaction = control.begin().await;
    let approved =
        request::approve(&mut transaction, &control.secrets, id, Some("welcome"), "command", LIMITS, START).await?;
    transaction.commit().await.unwrap();
    Ok(approved)
}

async fn reject(control: &Control, id: &str) -> Result<TopicRequest, Refused> {
    let mut transaction = control.begin().await;
    let rejected = request::reject(&mut transaction, id, None, "command", START).await?;
    transaction.commit().await.unwrap();
    Ok(rejected)
}

async fn set_max_topics(control: &Control, limit: Option<u64>) {
    let mut transaction = control.begin().await;
    plan::set_limit(&mut transaction, plan::FREE, Metric::MaxTopics, limit, START).await.unwrap();
    transaction.commit().await.unwrap();
}

async fn status(control: &Control, id: &str) -> RequestStatus {
    request::find(&control.database, id).await.unwrap().unwrap().status
}

on_both! {
    async fn request_goes_from_pending_to_active(control) {
        // S-2
        control.join(&person(1)).await;
        let asked = ask(control, &person(1), 1).await.unwrap();
        assert_eq!((asked.status, asked.services.as_slice()), (RequestStatus::Pending, &[Service::Relay, Service::Index][..]));
        assert!(subscription::wanted(&control.database, START).await.unwrap().is_empty());
        approve(control, &asked.id).await.unwrap();
        let approved = request::find(&control.database, &asked.id).await.unwrap().unwrap();
        assert_eq!(approved.status, RequestStatus::Approved);
        assert_eq!((approved.review_note.as_deref(), approved.reviewed_by.as_deref()), (Some("welcome"), Some("command")));
        assert_eq!(request::waiting_topics(&control.database).await.unwrap(), [topic(1)]);
        assert_eq!(subscription::wanted(&control.database, START).await.unwrap()[&topic(1)], 1);
        assert_eq!(request::taken_in(&control.database, &topic(1)).await.unwrap(), 1);
        assert_eq!(request::taken_in(&control.database, &topic(1)).await.unwrap(), 0);
        assert_eq!(status(control, &asked.id).await, RequestStatus::Active);
        let people = control.people(START).await;
        assert!(people.is_subscribed(&person(1), &topic(1), Service::Index));
        assert!(!people.is_subscribed(&person(1), &topic(1), Service::Trust), "not asked for");
        assert!(!people.is_subscribed(&person(1), &topic(2), Service::Relay));
        assert!(!people.is_subscribed(&person(2), &topic(1), Service::Relay));
    }

    /// S-6; section 13, 14: approving twice counted twice.
    async fn request_is_decided_on_once(control) {
        control.join(&person(1)).await;
        let asked = ask(control, &person(1), 1).await.unwrap();
        let rivals = tokio::join!(approve(control, &asked.id), approve(control, &asked.id), reject(control, &asked.id));
        let mut names = [name(rivals.0), name(rivals.1), name(rivals.2)];
        names.sort();
        assert_eq!(names, ["RequestNotPending", "RequestNotPending", "ok"]);
        for refused in [
            name(approve(control, &asked.id).await),
            name(request::cancel(&control.database, &person(1), &asked.id, START).await),
        ] {
            assert_eq!(refused, "RequestNotPending");
        }
        assert_eq!(name(approve(control, "nonsense").await), "UnknownRequest");
    }

    /// S-6; section 13, 13: an ended subscription blocked a new request.
    async fn topic_can_be_asked_for_again_after_no_and_after_the_end(control) {
        control.join(&person(1)).await;
        let first = ask(control, &person(1), 1).await.unwrap();
        assert_eq!(ask(control, &person(1), 1).await.unwrap().id, first.id, "it is pending");
        reject(control, &first.id).await.unwrap();
        let second = ask(control, &person(1), 1).await.unwrap();
        assert_ne!(second.id, first.id);
        request::cancel(&control.database, &person(1), &second.id, START).await.unwrap();
        let third = ask(control, &person(1), 1).await.unwrap();
        approve(control, &third.id).await.unwrap();
        assert_eq!(ask(control, &person(1), 1).await.unwrap().id, third.id, "the person has the topic");
        subscription::end(&control.database, &person(1), &topic(1), later(1)).await.unwrap();
        assert_eq!(name(subscription::end(&control.database, &person(1), &topic(1), later(1)).await), "NotSubscribed");
        assert!(subscription::wanted(&control.database, START).await.unwrap().is_empty());
        let fourth = ask(control, &person(1), 1).await.unwrap();
        assert_ne!(fourth.id, third.id);
        approve(control, &fourth.id).await.unwrap();
        let subscriptions = subscription::list(&control.database, &person(1)).await.unwrap();
        assert_eq!((subscriptions.len(), subscriptions[0].ended_at), (1, None));
    }

    async fn only_its_own_request_can_be_cancelled_by_a_person(control) {
        for number in [1, 2] {
            control.join(&person(number)).await;
        }
        let asked = ask(control, &person(1), 1).await.unwrap();
        let foreign = request::cancel(&control.database, &person(2), &asked.id, START).await;
        assert_eq!(name(foreign), "UnknownRequest");
        assert_eq!(status(control, &asked.id).await, RequestStatus::Pending);
    }

    async fn limits_hold_at_the_request_and_at_the_approval(control) {
        // S-4, S-6; section 13, 12
        control.join(&person(1)).await;
        let pending = [ask(control, &person(1), 1).await.unwrap(), ask(control, &person(1), 2).await.unwrap()];
        let refused = ask(control, &person(1), 3).await;
        let Err(Refused::TooManyPendingRequests { current: 2, limit: 2 }) = refused else { panic!("{refused:?}") };
        approve(control, &pending[0].id).await.unwrap();
        let refused = approve(control, &pending[1].id).await;
        assert_eq!(name(refused), "QuotaExceeded", "the free plan has one topic");
        assert_eq!(status(control, &pending[1].id).await, RequestStatus::Pending, "a refused approval changes nothing");
        let refused = ask(control, &person(1), 3).await;
        let Err(Refused::QuotaExceeded { metric: Metric::MaxTopics, current: 1, limit: 1, reset_at: None }) = refused
        else { panic!("{refused:?}") };
        set_max_topics(control, None).await;
        approve(control, &pending[1].id).await.unwrap();
        let asked = [ask(control, &person(1), 3).await.unwrap(), ask(control, &person(1), 4).await.unwrap()];
        for (asked, expected) in asked.iter().zip(["ok", "TooManyTopics"]) {
            assert_eq!(name(approve(control, &asked.id).await), expected);
        }
        control.join(&person(2)).await;
        let asked = ask(control, &person(2), 1).await.unwrap();
        approve(control, &asked.id).await.unwrap();
        assert_eq!(subscription::wanted(&control.database, START).await.unwrap()[&topic(1)], 2, "it is carried already");
    }

    async fn approvals_at_the_same_time_keep_the_limit(control) {
        //
        control.join(&person(1)).await;
        let asked = [ask(control, &person(1), 1).await.unwrap(), ask(control, &person(1), 2).await.unwrap()];
        let both = tokio::join!(approve(control, &asked[0].id), approve(control, &asked[1].id));
        let mut both = [name(both.0), name(both.1)];
        both.sort();
        assert_eq!(both, ["QuotaExceeded", "ok"]);
    }

    async fn person_who_is_not_served_gets_nothing(control) {
        // S-2
        assert_eq!(name(ask(control, &person(1), 1).await), "UnknownAccount");
        control.join(&person(1)).await;
        let asked = ask(control, &person(1), 1).await.unwrap();
        let mut transaction = control.begin().await;
        ban::ban(&mut transaction, &control.secrets, &person(1), "spam", None, START).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(name(approve(control, &asked.id).await), "Banned");
        let mut transaction = control.begin().await;
        account::set_status(&mut transaction, &person(1), AccountStatus::Disabled, None, START).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(name(approve(control, &asked.id).await), "AccountDisabled");
        assert_eq!(name(ask(control, &person(1), 2).await), "AccountDisabled");
    }

    async fn subscription_is_paused_while_its_person_is_not_served(control) {
        // S-1, S-7
        set_max_topics(control, None).await;
        for number in [1, 2] {
            control.join(&person(number)).await;
            let asked = ask(control, &person(number), 1).await.unwrap();
            approve(control, &asked.id).await.unwrap();
        }
        let wanted = async |now| subscription::wanted(&control.database, now).await.unwrap().get(&topic(1)).copied();
        assert_eq!(wanted(START).await, Some(2));
        let mut transaction = control.begin().await;
        ban::ban(&mut transaction, &control.secrets, &person(1), "spam", Some(later(60)), START).await.unwrap();
        account::set_status(&mut transaction, &person(2), AccountStatus::Disabled, None, START).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(wanted(START).await, None);
        assert_eq!(wanted(later(60)).await, Some(1), "the ban is over");
    }

    async fn request_of_a_subscription_that_ended_early_is_cancelled(control) {
        // S-6
        control.join(&person(1)).await;
        let asked = ask(control, &person(1), 1).await.unwrap();
        approve(control, &asked.id).await.unwrap();
        subscription::end(&control.database, &person(1), &topic(1), START).await.unwrap();
        assert!(request::waiting_topics(&control.database).await.unwrap().is_empty());
        let found = request::find(&control.database, &asked.id).await.unwrap().unwrap();
        assert_eq!(found.status, RequestStatus::Cancelled);
    }

    async fn node_that_carries_enough_topics_is_asked_for_no_more(control) {
        // S-4
        set_max_topics(control, None).await;
        for number in 1..=4 {
            control.join(&person(number)).await;
        }
        for number in 1..=3 {
            let asked = ask(control, &person(number), number).await.unwrap();
            approve(control, &asked.id).await.unwrap();
        }
        let refused = ask(control, &person(4), 4).await.unwrap_err();
        assert!(matches!(refused, Refused::TooManyTopics { current: 3, limit: 3 }), "{refused:?}");
        assert_eq!(name(ask(control, &person(4), 1).await), "ok", "one that it carries");
    }

    async fn requests_are_listed_in_pages(control) {
        set_max_topics(control, None).await;
        for number in 1..=3 {
            control.join(&person(number)).await;
            ask(control, &person(number), number).await.unwrap();
            ask(control, &person(number), number + 10).await.unwrap();
        }
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let page = request::list(&control.database, None, Some(RequestStatus::Pending), after, 4).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.created_at, last.id.clone()));
            found.extend(page.into_iter().map(|request| request.topic));
        }
        found.sort();
        assert_eq!(found, [1, 2, 3, 11, 12, 13].map(topic));
        let own = request::list(&control.database, Some(&person(2)), None, None, 10).await.unwrap();
        assert_eq!(own.len(), 2);
    }
}
