//! What is held in memory (A-7: a change counts at once, on every node of the database).

use kukuri_control::{
    account::{self, AccountStatus},
    ban,
    metric::Metric,
    people::{People, Refreshed},
    plan,
    secret::{self, Purpose, Secrets},
    token,
};

use crate::support::{START, later, name, on_both, person};

on_both! {
    async fn change_by_another_process_is_seen(control) {
        let people = control.people(START).await;
        assert_eq!(name(people.check_served(&person(1), START)), "UnknownAccount");
        assert_eq!(people.refresh(&control.database, START).await.unwrap(), Refreshed::Same);
        control.join(&person(1)).await;
        assert_eq!(people.refresh(&control.database, START).await.unwrap(), Refreshed::New);
        assert_eq!(name(people.check_served(&person(1), START)), "ok");

        let other = control.open_again().await;
        let mut transaction = other.begin().await.unwrap();
        ban::ban(&mut transaction, &control.secrets, &person(1), "spam", Some(later(60)), START).await.unwrap();
        ban::ban(&mut transaction, &control.secrets, &person(2), "spam", None, START).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(people.refresh(&control.database, START).await.unwrap(), Refreshed::Changed);
        assert_eq!(name(people.check_served(&person(1), START)), "Banned");
        assert_eq!(name(people.check_served(&person(1), later(60))), "ok", "a ban ends without a change");
        assert_eq!(name(people.check_ban(&person(2), START)), "Banned", "without an account");

        let mut transaction = other.begin().await.unwrap();
        ban::lift(&mut transaction, &control.secrets, &person(2), START).await.unwrap();
        account::set_status(&mut transaction, &person(1), AccountStatus::Disabled, None, START).await.unwrap();
        transaction.commit().await.unwrap();
        people.refresh(&control.database, later(60)).await.unwrap();
        assert_eq!(name(people.check_served(&person(1), later(60))), "AccountDisabled");
        assert_eq!(name(people.check_ban(&person(2), START)), "ok");
        let fresh = People::load(&other, later(60)).await.unwrap();
        assert_eq!(name(fresh.check_served(&person(1), later(60))), "AccountDisabled");
        other.close().await;
    }

    async fn token_that_was_ended_is_not_taken(control) {
        //
        const URL: &str = "wss://node.example";
        control.join(&person(1)).await;
        let people = control.people(START).await;
        let issue = |now| {
            let token = token::issue(&control.secrets, URL, &person(1), now).unwrap();
            token::check(&control.secrets, URL, &token.text, now).unwrap()
        };
        let (first, second) = (issue(START), issue(START));
        token::end(&control.database, &first, START).await.unwrap();
        people.refresh(&control.database, START).await.unwrap();
        assert_eq!(name(people.check_token(&first)), "AuthFailed");
        assert_eq!(name(people.check_token(&second)), "ok");
        let mut transaction = control.begin().await;
        account::end_tokens(&mut transaction, &person(1), later(10)).await.unwrap();
        transaction.commit().await.unwrap();
        people.refresh(&control.database, START).await.unwrap();
        assert_eq!(name(people.check_token(&second)), "AuthFailed", "of before");
        assert_eq!(name(people.check_token(&issue(later(10)))), "ok");
    }

    async fn transaction_that_is_dropped_changes_nothing_and_blocks_nobody(control) {
        let mut transaction = control.begin().await;
        ban::ban(&mut transaction, &control.secrets, &person(1), "spam", None, START).await.unwrap();
        drop(transaction);
        let people = control.people(START).await;
        assert_eq!(name(people.check_ban(&person(1), START)), "ok");
        control.join(&person(1)).await;
    }
}

#[tokio::test]
async fn change_that_one_caller_has_found_is_still_told_to_the_node() {
    let control = crate::support::Control::on_sqlite().await;
    let node = kukuri_control::Control::open(control.database.clone(), START).await.unwrap();
    control.join(&person(1)).await;
    node.refresh(START).await.unwrap();
    assert_eq!(node.take_refreshed(), Refreshed::New);
    let ban = kukuri_control::actions::Ban { pubkey: person(1), reason: "spam".to_owned(), until: None };
    node.perform(&ban, &kukuri_control::audit::Actor::command(), START).await.unwrap();
    assert_eq!(node.refresh(START).await.unwrap(), Refreshed::Same);
    node.changed().await;
    assert_eq!((node.take_refreshed(), node.take_refreshed()), (Refreshed::Changed, Refreshed::Same));
}

on_both! {
    async fn person_is_seen_as_a_whole_while_others_change_it(control) {
        control.join(&person(1)).await;
        let people = control.people(START).await;
        let other = control.open_again().await;
        let changes = tokio::spawn(async move {
            for limit in 0..40 {
                let plan = if limit % 2 == 0 { "member" } else { "free" };
                let mut transaction = other.begin().await.unwrap();
                plan::set_limit(&mut transaction, "member", Metric::MaxTopics, Some(limit), START).await.unwrap();
                plan::assign(&mut transaction, &person(1), plan, START).await.unwrap();
                transaction.commit().await.unwrap();
            }
        });
        while !changes.is_finished() {
            people.refresh(&control.database, START).await.unwrap();
            assert_eq!(name(people.check_served(&person(1), START)), "ok");
        }
        changes.await.unwrap();
    }

    async fn lifted_ban_that_was_nameless_before_is_over(control) {
        // the ban of a deleted account, which was banned anew.
        let people = control.people(START).await;
        let ban = async || {
            let mut transaction = control.begin().await;
            ban::ban(&mut transaction, &control.secrets, &person(1), "spam", None, START).await.unwrap();
            transaction.commit().await.unwrap();
        };
        ban().await;
        let forget = kukuri_control::database::sql("UPDATE cn_user.bans SET pubkey = NULL, revision = revision + 1");
        control.database.change(forget).await.unwrap();
        control.join(&person(2)).await;
        people.refresh(&control.database, START).await.unwrap();
        let pseudonyms = control.secrets.pseudonyms(&person(1));
        assert_eq!(name(people.check_nameless_bans(&pseudonyms, START)), "Banned");
        ban().await;
        let mut transaction = control.begin().await;
        ban::lift(&mut transaction, &control.secrets, &person(1), START).await.unwrap();
        transaction.commit().await.unwrap();
        people.refresh(&control.database, START).await.unwrap();
        assert_eq!(name(people.check_nameless_bans(&pseudonyms, START)), "ok");
        assert_eq!(name(people.check_ban(&person(1), START)), "ok");
    }

    async fn ban_under_a_new_secret_is_not_hidden_by_a_lifted_one(control) {
        let mut transaction = control.begin().await;
        ban::ban(&mut transaction, &control.secrets, &person(1), "old", None, START).await.unwrap();
        ban::lift(&mut transaction, &control.secrets, &person(1), START).await.unwrap();
        secret::rotate(&mut transaction, Purpose::Persons, START).await.unwrap();
        transaction.commit().await.unwrap();
        let secrets = Secrets::load(&control.database).await.unwrap();
        let people = control.people(START).await;
        let mut transaction = control.begin().await;
        ban::ban(&mut transaction, &secrets, &person(1), "new", None, START).await.unwrap();
        transaction.commit().await.unwrap();
        people.refresh(&control.database, START).await.unwrap();
        for people in [people, control.people(START).await] {
            assert_eq!(name(people.check_ban(&person(1), START)), "Banned");
        }
    }
}
