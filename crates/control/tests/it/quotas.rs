//! What people may use.

use kukuri_control::{
    Refused,
    member_usage::MemberUsage,
    metric::Metric,
    people::Refreshed,
    plan,
    usage::{self, DailyUse, Outcome},
};
use kukuri_domain::{PublicKey, Timestamp};

use crate::support::{Control, START, later, name, on_both, person};

async fn use_one(control: &Control, limit: Option<u64>, outcome: Outcome, now: Timestamp) -> String {
    let metric = Metric::SearchRequests;
    match usage::reserve(&control.database, &person(1), metric, limit, now).await {
        Ok(reservation) => {
            usage::settle(&control.database, reservation, outcome, None, now).await.unwrap();
            "ok".to_owned()
        }
        refused => name(refused),
    }
}

on_both! {
    /// Q-2; section 4 of the earlier node: requests at the same time overshot.
    async fn requests_at_the_same_time_never_exceed_a_limit(control) {
        control.join(&person(2)).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let database = control.database.clone();
            tasks.spawn(async move {
                let reserved = usage::reserve(&database, &person(2), Metric::TrustRequests, Some(10), START).await;
                match reserved {
                    Ok(reservation) => {
                        usage::settle(&database, reservation, Outcome::Ok, None, START).await.unwrap();
                        true
                    }
                    Err(_) => false,
                }
            });
        }
        let done = tasks.join_all().await.into_iter().filter(|done| *done).count();
        assert_eq!(done, 10);
        let used = usage::of_day(&control.database, &person(2), START).await.unwrap();
        assert_eq!(used[&Metric::TrustRequests], 10);
    }

    async fn work_that_failed_is_not_counted(control) {
        // Q-2; section 4 of the earlier node: an invalid request cost a unit.
        let of_nobody = usage::reserve(&control.database, &person(1), Metric::SearchRequests, None, START).await;
        assert!(matches!(of_nobody, Err(Refused::UnknownAccount)), "{of_nobody:?}");
        control.join(&person(1)).await;
        for outcome in [Outcome::Error, Outcome::Rejected, Outcome::Ok] {
            assert_eq!(use_one(control, Some(1), outcome, START).await, "ok");
        }
        assert_eq!(use_one(control, Some(1), Outcome::Ok, START).await, "QuotaExceeded");
        assert_eq!(use_one(control, Some(0), Outcome::Ok, START).await, "QuotaExceeded");
        assert_eq!(use_one(control, None, Outcome::Ok, START).await, "ok", "without a limit");
        assert_eq!(use_one(control, Some(1), Outcome::Ok, later(86_400)).await, "ok", "on the next day");
    }

    async fn refusal_names_the_limit_and_when_it_begins_anew(control) {
        //
        control.join(&person(1)).await;
        let refused = usage::reserve(&control.database, &person(1), Metric::SearchRequests, Some(0), START).await;
        let Err(Refused::QuotaExceeded { metric, limit, reset_at, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((metric, limit), (Metric::SearchRequests, 0));
        assert_eq!(reset_at, Some(later(43_200)), "midnight, UTC");
    }

    async fn plans_have_limits_and_people_have_plans(control) {
        //
        control.join(&person(1)).await;
        let free = plan::list(&control.database).await.unwrap();
        assert_eq!(free[0].limits[&Metric::MaxTopics], 1);
        assert_eq!(free[0].limits.get(&Metric::EventPublishes), None, "unlimited");
        let mut transaction = control.begin().await;
        let set = |limit| (Metric::SearchRequests, limit);
        for (plan, (metric, limit), before) in [
            ("member", set(Some(5)), None),
            ("member", set(Some(7)), Some(5)),
            ("free", set(None), Some(100)),
        ] {
            let known = plan::set_limit(&mut transaction, plan, metric, limit, START).await.unwrap();
            assert_eq!(known, before, "{plan}");
        }
        let malformed = plan::set_limit(&mut transaction, "A plan", Metric::MaxTopics, None, START).await;
        assert_eq!(name(malformed), "Invalid");
        assert_eq!(plan::assign(&mut transaction, &person(1), "member", START).await.unwrap(), "free");
        assert_eq!(name(plan::assign(&mut transaction, &person(1), "gold", START).await), "UnknownPlan");
        assert_eq!(name(plan::assign(&mut transaction, &person(2), "member", START).await), "UnknownAccount");
        transaction.commit().await.unwrap();
        let people = control.people(START).await;
        assert_eq!(people.limit(&person(1), Metric::SearchRequests), Some(7));
        assert_eq!(people.limit(&person(2), Metric::SearchRequests), None, "the free plan's was removed");
        assert_eq!(people.limit(&person(2), Metric::MaxTopics), Some(1));
        let mut transaction = control.begin().await;
        assert_eq!(plan::assign(&mut transaction, &person(1), "free", START).await.unwrap(), "member");
        transaction.commit().await.unwrap();
        assert_eq!(people.refresh(&control.database, START).await.unwrap(), Refreshed::Changed);
        assert_eq!(people.plan(&person(1)).unwrap().id, "free");
    }

    async fn counts_of_memory_are_added_up_over_nodes(control) {
        //
        for number in 1..=3 {
            control.join(&person(number)).await;
        }
        let metric = Metric::EventPublishes;
        let [one, other] = [MemberUsage::default(), MemberUsage::default()];
        let count = |usage: &MemberUsage, limit, now| name(usage.count(&person(1), metric, limit, now));
        let total = async |now| {
            usage::of_day(&control.database, &person(1), now).await.unwrap().get(&metric).copied().unwrap_or_default()
        };
        let database = &control.database;
        for _ in 0..3 {
            assert_eq!(count(&one, 5, START), "ok");
        }
        one.write(database, START).await.unwrap();
        one.write(database, START).await.unwrap();
        assert_eq!(total(START).await, 3, "written once");
        assert_eq!(count(&other, 5, START), "ok");
        other.write(database, START).await.unwrap();
        assert_eq!((total(START).await, count(&other, 5, START)), (4, "ok".to_owned()), "it has read what the other node counted");
        assert_eq!(count(&other, 5, START), "QuotaExceeded");
        assert_eq!(count(&other, 6, START), "ok", "a larger plan");
        let refused = other.count(&person(1), metric, 6, START).unwrap_err();
        let Refused::QuotaExceeded { current, limit, reset_at, .. } = refused else { panic!("{refused:?}") };
        assert_eq!((current, limit, reset_at), (6, 6, Some(later(43_200))));
        assert_eq!(name(other.count(&person(2), metric, 1, START)), "ok", "another person");
        assert_eq!(name(other.count(&person(1), Metric::BackfillRequests, 1, START)), "ok", "another metric");
        assert_eq!(name(other.count(&person(3), metric, 0, START)), "QuotaExceeded");
        // What was counted before midnight belongs to that day.
        assert_eq!(count(&other, 6, later(86_400)), "ok");
        other.write(database, later(86_400)).await.unwrap();
        assert_eq!((total(START).await, total(later(86_400)).await), (6, 1));
    }

    async fn many_counts_are_written_together(control) {
        let usage = MemberUsage::default();
        let people: Vec<PublicKey> = (0..150).map(person).collect();
        for person in &people {
            control.join(person).await;
        }
        for (number, person) in people.iter().enumerate() {
            for _ in 0..=number % 3 {
                usage.count(person, Metric::EventPublishes, 9, START).unwrap();
            }
        }
        usage.write(&control.database, START).await.unwrap();
        for (number, person) in people.iter().enumerate() {
            let used = usage::of_day(&control.database, person, START).await.unwrap();
            assert_eq!(used[&Metric::EventPublishes], number as u64 % 3 + 1, "{number}");
        }
    }

    async fn counts_that_could_not_be_written_wait_for_the_next_time(control) {
        control.join(&person(1)).await;
        let usage = MemberUsage::default();
        usage.count(&person(1), Metric::EventPublishes, 9, START).unwrap();
        let rename = |from: &str, to: &str| kukuri_control::database::sql(format!("ALTER TABLE cn_user.{from} RENAME TO {to}"));
        let sqlite = control.directory().is_some();
        let (from, back) = if sqlite { ("cn_user_away", "cn_user_usage_counters_daily") } else { ("away", "usage_counters_daily") };
        control.database.change(rename("usage_counters_daily", from)).await.unwrap();
        usage.write(&control.database, START).await.unwrap_err();
        control.database.change(rename("away", back)).await.unwrap();
        usage.count(&person(1), Metric::EventPublishes, 9, START).unwrap();
        usage.write(&control.database, START).await.unwrap();
        let used = usage::of_day(&control.database, &person(1), START).await.unwrap();
        assert_eq!(used[&Metric::EventPublishes], 2);
    }

    async fn nothing_is_counted_of_a_person_whose_account_is_gone(control) {
        // N-2
        control.join(&person(1)).await;
        let usage = MemberUsage::default();
        for number in [1, 2] {
            usage.count(&person(number), Metric::EventPublishes, 9, START).unwrap();
        }
        usage.write(&control.database, START).await.unwrap();
        assert_eq!(usage::of_day(&control.database, &person(1), START).await.unwrap().len(), 1);
        assert!(usage::of_day(&control.database, &person(2), START).await.unwrap().is_empty(), "no account");
    }

    async fn usage_of_days_is_listed(control) {
        control.join(&person(1)).await;
        let used = [DailyUse { person: person(1), metric: Metric::EventPublishes, day: usage::day_of(START), units: 7 }];
        usage::add_all(&control.database, &used).await.unwrap();
        let days = usage::of_days(&control.database, &person(1), 30, later(86_400)).await.unwrap();
        assert_eq!(days.iter().map(|day| (day.metric.as_str(), day.count)).collect::<Vec<_>>(), [("relay.ws_event_publishes", 7)]);
        assert!(usage::of_days(&control.database, &person(1), 1, later(86_400)).await.unwrap().is_empty());
    }
}
