//! Who gets in.

use kukuri_control::{
    account::{self, AccountStatus},
    admission::{self, AdmissionMode},
    ban, invite, sign_in, token,
};
use kukuri_domain::Timestamp;

use crate::support::{Control, START, later, name, on_both, person};

async fn set_mode(control: &Control, mode: AdmissionMode) {
    let mut transaction = control.begin().await;
    admission::set_mode(&mut transaction, mode, START).await.unwrap();
    transaction.commit().await.unwrap();
}

async fn invite(control: &Control, uses: u32, expires_at: Option<Timestamp>) -> String {
    let mut transaction = control.begin().await;
    let (code, _) = invite::create(&mut transaction, uses, expires_at, START).await.unwrap();
    transaction.commit().await.unwrap();
    code
}

async fn visit(control: &Control, number: u8, code: Option<&str>, now: Timestamp) -> String {
    name(sign_in::first_visit(&control.database, &control.secrets, &person(number), code, now).await)
}

on_both! {
    /// A-2; section 3.1 of the earlier node: two verifications with one challenge both succeeded.
    async fn challenge_signs_one_person_in_once(control) {
        let (database, secrets) = (&control.database, &control.secrets);
        let made = sign_in::challenge(database, &person(1), START).await.unwrap();
        let attempt = |number: u8, now| {
            let challenge = made.challenge.clone();
            async move { name(sign_in::sign_in(database, secrets, &person(number), &challenge, None, now).await) }
        };
        assert_eq!(attempt(2, START).await, "AuthFailed", "of another key");
        assert_eq!(attempt(1, made.expires_at).await, "AuthFailed", "expired");
        let both = tokio::join!(attempt(1, START), attempt(1, START));
        let mut both = [both.0, both.1];
        both.sort();
        assert_eq!(both, ["AuthFailed", "ok"]);
        assert_eq!(name(sign_in::sign_in(database, secrets, &person(1), "", None, START).await), "AuthFailed");
    }

    async fn invite_is_used_as_often_as_it_may_be_and_not_by_who_fails(control) {
        //
        set_mode(control, AdmissionMode::Invite).await;
        assert_eq!(visit(control, 1, None, START).await, "InviteRequired");
        assert_eq!(visit(control, 1, Some("nonsense"), START).await, "InviteInvalid");
        let code = invite(control, 2, Some(later(60))).await;
        assert_eq!(visit(control, 1, Some(&code), later(60)).await, "InviteExpired");
        assert_eq!(visit(control, 1, Some(&code), START).await, "ok");
        assert_eq!(visit(control, 1, Some(&code), START).await, "ok", "an account needs no second use");
        let rivals = tokio::join!(visit(control, 2, Some(&code), START), visit(control, 3, Some(&code), START));
        let mut rivals = [rivals.0, rivals.1];
        rivals.sort();
        assert_eq!(rivals, ["InviteExhausted", "ok"], "the last use goes to one of two");
        assert_eq!(invite::list(&control.database).await.unwrap()[0].used_count, 2);

        let code = invite(control, 5, None).await;
        let mut transaction = control.begin().await;
        invite::revoke(&mut transaction, &code, START).await.unwrap();
        assert_eq!(name(invite::revoke(&mut transaction, &code, START).await), "InvalidState");
        assert_eq!(name(invite::revoke(&mut transaction, "0123456789abcdef", START).await), "UnknownInvite");
        transaction.commit().await.unwrap();
        assert_eq!(visit(control, 4, Some(&code), START).await, "InviteRevoked");
    }

    async fn change_of_the_mode_locks_nobody_out(control) {
        //
        control.join(&person(1)).await;
        set_mode(control, AdmissionMode::Allowlist).await;
        assert_eq!(visit(control, 1, None, START).await, "ok");
        assert_eq!(visit(control, 2, None, START).await, "NotAllowlisted");
        let mut transaction = control.begin().await;
        admission::set_allowed(&mut transaction, &person(2), true, START).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(visit(control, 2, None, START).await, "ok");
        assert_eq!(admission::allowed(&control.database).await.unwrap(), [person(2)]);
    }

    async fn ban_comes_before_everything_and_ends_by_itself(control) {
        //
        control.join(&person(1)).await;
        let mut transaction = control.begin().await;
        for number in [1, 2] {
            let banned = ban::ban(&mut transaction, &control.secrets, &person(number), "spam", Some(later(60)), START).await;
            assert_eq!(banned.unwrap(), None);
        }
        let empty = ban::ban(&mut transaction, &control.secrets, &person(3), " ", None, START).await;
        assert_eq!(name(empty), "Invalid");
        transaction.commit().await.unwrap();
        for number in [1, 2] {
            assert_eq!(visit(control, number, None, START).await, "Banned");
            assert_eq!(visit(control, number, None, later(60)).await, "ok");
        }
        assert_eq!(ban::list(&control.database, START).await.unwrap().len(), 2);
        let mut transaction = control.begin().await;
        ban::lift(&mut transaction, &control.secrets, &person(1), START).await.unwrap();
        assert_eq!(name(ban::lift(&mut transaction, &control.secrets, &person(1), START).await), "InvalidState");
        transaction.commit().await.unwrap();
        assert_eq!(ban::list(&control.database, START).await.unwrap().len(), 1);
    }

    async fn disabled_account_is_refused_until_it_is_enabled(control) {
        //
        control.join(&person(1)).await;
        for (status, expected) in [(AccountStatus::Disabled, "AccountDisabled"), (AccountStatus::Active, "ok")] {
            let mut transaction = control.begin().await;
            account::set_status(&mut transaction, &person(1), status, Some("why"), START).await.unwrap();
            transaction.commit().await.unwrap();
            assert_eq!(visit(control, 1, None, START).await, expected);
        }
        let mut transaction = control.begin().await;
        let unknown = account::set_status(&mut transaction, &person(9), AccountStatus::Disabled, None, START).await;
        assert_eq!(name(unknown), "UnknownAccount");
    }

    async fn accounts_are_listed_in_pages(control) {
        for number in 1..=5 {
            let (database, secrets) = (&control.database, &control.secrets);
            sign_in::first_visit(database, secrets, &person(number), None, later(number.into())).await.unwrap();
        }
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let page = account::list(&control.database, after, 2).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.created_at, last.pubkey));
            found.extend(page.into_iter().map(|account| account.pubkey));
        }
        assert_eq!(found, [1, 2, 3, 4, 5].map(person));
    }

    async fn credential_is_used_once(control) {
        // events of NIP-98.
        let once = |now| sign_in::use_once(&control.database, "an id", later(60), now);
        let both = tokio::join!(once(START), once(START));
        assert_ne!(both.0.unwrap(), both.1.unwrap());
        assert!(!once(later(59)).await.unwrap());
        assert!(once(later(60)).await.unwrap(), "what has expired is forgotten");
    }
}

#[tokio::test]
async fn token_is_taken_only_as_it_was_made() {
    //
    const URL: &str = "wss://node.example";
    let (control, other) = (Control::on_sqlite().await, Control::on_sqlite().await);
    let token = token::issue(&control.secrets, URL, &person(1), START).unwrap();
    let check = |text: &str, url, now| token::check(&control.secrets, url, text, now);
    let claims = check(&token.text, URL, START).unwrap();
    assert_eq!((claims.sub, claims.exp, token.expires_at), (person(1), START.0 + 900, later(900)));
    let [header, body, mac] = token.text.split('.').collect::<Vec<_>>().try_into().unwrap();
    let of_other_node = token::issue(&other.secrets, URL, &person(1), START).unwrap().text;
    // {"alg":"none","typ":"JWT","kid":"1"}
    let unsigned = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIiwia2lkIjoiMSJ9.{body}.");
    let forged_body = token::issue(&control.secrets, URL, &person(2), START).unwrap().text;
    let forged_body = forged_body.split('.').nth(1).unwrap();
    for (why, text, url, now) in [
        ("expired", token.text.clone(), URL, later(900)),
        ("of another issuer", token.text.clone(), "wss://other.example", START),
        ("signed with another secret", of_other_node, URL, START),
        ("not signed", unsigned, URL, START),
        ("another person's claims", format!("{header}.{forged_body}.{mac}"), URL, START),
        ("cut", token.text[..token.text.len() - 1].to_owned(), URL, START),
        ("padded", format!("{}=", token.text), URL, START),
        ("empty", String::new(), URL, START),
        ("dots", "..".to_owned(), URL, START),
        ("huge", "a".repeat(1 << 20), URL, START),
    ] {
        assert_eq!(name(check(&text, url, now)), "AuthFailed", "{why}");
    }

    let mut transaction = control.begin().await;
    kukuri_control::secret::rotate(&mut transaction, kukuri_control::secret::Purpose::Tokens, START).await.unwrap();
    transaction.commit().await.unwrap();
    let rotated = kukuri_control::secret::Secrets::load_or_create(&control.database, START).await.unwrap();
    assert!(
        token::check(&rotated, URL, &token.text, START).is_ok(),
        "tokens of the former secret expire by themselves"
    );
    let newer = token::issue(&rotated, URL, &person(1), START).unwrap().text;
    assert_eq!(name(token::check(&control.secrets, URL, &newer, START)), "AuthFailed");
}
