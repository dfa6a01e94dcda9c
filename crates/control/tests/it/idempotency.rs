//! Requests that may be sent again.

use kukuri_control::idempotency::{self, ABANDONED_AFTER, ANSWER_TTL, Begun, KeptAnswer, MAX_KEPT, RepeatableRequest};
use kukuri_domain::Timestamp;

use crate::support::{Control, START, later, on_both, person};

fn request(number: u8, key: &str, content: &str) -> RepeatableRequest {
    RepeatableRequest { person: person(number), key: key.to_owned(), content_hash: content.to_owned() }
}

fn answer(body: &str) -> KeptAnswer {
    KeptAnswer { status: 200, body: body.to_owned() }
}

async fn begin(control: &Control, request: &RepeatableRequest, now: Timestamp) -> Begun {
    idempotency::begin(&control.database, request, now).await.unwrap()
}

on_both! {
    async fn answer_is_kept_for_a_day_for_its_person_key_and_content(control) {
        let first = request(1, "k", "a");
        assert_eq!(begin(control, &first, START).await, Begun::New);
        assert_eq!(begin(control, &first, START).await, Begun::InProgress);
        idempotency::keep(&control.database, &first, &answer("done"), START).await.unwrap();
        for now in [START, later(ANSWER_TTL - 1)] {
            assert_eq!(begin(control, &first, now).await, Begun::Answered(answer("done")));
            assert_eq!(begin(control, &request(1, "k", "b"), now).await, Begun::OtherContent);
        }
        assert_eq!(begin(control, &request(2, "k", "b"), START).await, Begun::New, "another person");
        assert_eq!(begin(control, &request(1, "l", "b"), START).await, Begun::New, "another key");
        assert_eq!(begin(control, &request(1, "k", "b"), later(ANSWER_TTL)).await, Begun::New, "a day later");
    }

    async fn request_without_a_final_answer_can_be_sent_again(control) {
        let first = request(1, "k", "a");
        assert_eq!(begin(control, &first, START).await, Begun::New);
        idempotency::forget(&control.database, &first, START).await.unwrap();
        assert_eq!(begin(control, &first, later(1)).await, Begun::New);
        // Its process ended: the work may be done again, but not other work.
        let late = later(1 + ABANDONED_AFTER);
        assert_eq!(begin(control, &request(1, "k", "b"), late).await, Begun::OtherContent);
        assert_eq!(begin(control, &first, later(ABANDONED_AFTER)).await, Begun::InProgress);
        assert_eq!(begin(control, &first, late).await, Begun::New);
        // The first one was only slow: its answer is not that of the second.
        idempotency::keep(&control.database, &first, &answer("late"), later(1)).await.unwrap();
        idempotency::forget(&control.database, &first, later(1)).await.unwrap();
        assert_eq!(begin(control, &first, late).await, Begun::InProgress);
    }

    async fn one_of_many_at_the_same_time_does_the_work(control) {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let database = control.database.clone();
            tasks.spawn(async move { idempotency::begin(&database, &request(1, "k", "a"), START).await.unwrap() });
        }
        let begun = tasks.join_all().await;
        assert_eq!(begun.iter().filter(|one| **one == Begun::New).count(), 1);
        assert_eq!(begun.iter().filter(|one| **one == Begun::InProgress).count(), 19);
    }

    async fn person_has_a_bounded_number_of_kept_answers(control) {
        let insert = "INSERT INTO cn_user.idempotent_requests (pubkey, idempotency_key, content_hash, created_at) VALUES ($1, $2, 'a', $3)";
        for number in 0..MAX_KEPT {
            let insert = kukuri_control::database::sql(insert).bind(&person(1)).bind(number.to_string()).bind(START);
            control.database.change(insert).await.unwrap();
        }
        assert_eq!(begin(control, &request(1, "one more", "a"), START).await, Begun::TooMany);
        assert_eq!(begin(control, &request(1, "0", "a"), START).await, Begun::InProgress, "a known one is answered");
        assert_eq!(begin(control, &request(2, "one more", "a"), START).await, Begun::New);
        assert_eq!(begin(control, &request(1, "one more", "a"), later(ANSWER_TTL)).await, Begun::New);
    }
}
