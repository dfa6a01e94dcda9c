//! What people agree to (L-1, L-2).

use kukuri_control::{
    consent::{self, Acceptance},
    people::Refreshed,
    policy::{self, PolicyType, PolicyVersion},
};
use kukuri_domain::Timestamp;

use crate::support::{Control, START, later, name, on_both, person};

pub(crate) fn version(policy_type: PolicyType, version: &str) -> PolicyVersion {
    PolicyVersion::new(policy_type, version).unwrap()
}

pub(crate) fn hash(content: &str) -> String {
    blake3::hash(content.as_bytes()).to_hex().to_string()
}

/// Drafts a version in two languages and publishes it.
pub(crate) async fn publish(control: &Control, of: &PolicyVersion, effective_at: Timestamp, now: Timestamp) {
    let mut transaction = control.begin().await;
    for locale in ["ja", "en"] {
        let content = format!("# {}\n{locale}", of.version);
        policy::draft(&mut transaction, of, locale, &content, now).await.unwrap();
    }
    policy::publish(&mut transaction, of, Some(effective_at), now).await.unwrap();
    transaction.commit().await.unwrap();
}

async fn accept(control: &Control, of: &PolicyVersion, content: &str, now: Timestamp) -> String {
    let acceptance = Acceptance { of: of.clone(), content_hash: hash(content) };
    name(consent::accept(&control.database, &person(1), &[acceptance], now).await)
}

on_both! {
    async fn published_text_never_changes(control) {
        // L-1; section 3.3 of the earlier node: a published text could be edited in place.
        let of = version(PolicyType::Terms, "1");
        publish(control, &of, START, START).await;
        let mut transaction = control.begin().await;
        for locale in ["ja", "fr"] {
            assert_eq!(name(policy::draft(&mut transaction, &of, locale, "new", START).await), "PolicyPublished");
        }
        assert_eq!(name(policy::publish(&mut transaction, &of, None, START).await), "PolicyPublished");
        let unknown = version(PolicyType::Terms, "2");
        assert_eq!(name(policy::publish(&mut transaction, &unknown, None, START).await), "UnknownPolicy");
        policy::draft(&mut transaction, &unknown, "ja", "text", START).await.unwrap();
        let past = policy::publish(&mut transaction, &unknown, Some(Timestamp(START.0 - 1)), START).await;
        assert_eq!(name(past), "Invalid");
    }

    async fn newest_version_in_effect_is_current(control) {
        // L-1; section 3.3: effective_at was never looked at.
        let [first, second] = ["1", "2"].map(|number| version(PolicyType::Terms, number));
        publish(control, &second, later(100), START).await;
        publish(control, &first, START, START).await;
        let people = control.people(START).await;
        for (now, current, coming) in [(START, &first, 1), (later(99), &first, 1), (later(100), &second, 0)] {
            let published = policy::published(&control.database, now).await.unwrap();
            assert_eq!((published.current.as_slice(), published.coming.len()), (&[current.clone()][..], coming));
            people.refresh(&control.database, now).await.unwrap();
            assert_eq!(people.published(), published, "memory follows the time");
        }
    }

    async fn consent_is_to_a_version_in_any_of_its_languages(control) {
        // L-2; section 3.3: the current policies of all locales were required.
        control.join(&person(1)).await;
        let terms = version(PolicyType::Terms, "1");
        publish(control, &terms, START, START).await;
        publish(control, &version(PolicyType::Rules, "1"), START, START).await;
        let people = control.people(START).await;
        assert_eq!(people.missing_consents(&person(1)), std::slice::from_ref(&terms), "rules are not accepted");
        for (why, of, content, expected) in [
            ("another text", &terms, "# 1\nfr", "OtherPolicyText"),
            ("not current", &version(PolicyType::Terms, "0"), "# 1\nja", "PolicyNotCurrent"),
            ("in English", &terms, "# 1\nen", "ok"),
            ("again, in Japanese", &terms, "# 1\nja", "ok"),
        ] {
            assert_eq!(accept(control, of, content, START).await, expected, "{why}");
        }
        let consents = consent::list(&control.database, &person(1)).await.unwrap();
        assert_eq!(consents.iter().map(|consent| consent.locale.as_str()).collect::<Vec<_>>(), ["en"], "once");
        people.refresh(&control.database, START).await.unwrap();
        assert!(people.has_consented(&person(1)) && !people.has_consented(&person(2)));
        assert_eq!(accept(control, &terms, "# 1\nen", START).await, "ok");
        assert_eq!(people.refresh(&control.database, START).await.unwrap(), Refreshed::Same, "no news for anybody");
        let empty = consent::accept(&control.database, &person(1), &[], START).await;
        assert_eq!(name(empty), "Invalid", "section 3.3: an empty list accepted everything");
    }

    async fn new_version_has_to_be_accepted_and_may_be_before_it_takes_effect(control) {
        // L-2
        control.join(&person(1)).await;
        let [first, second] = ["1", "2"].map(|number| version(PolicyType::Privacy, number));
        publish(control, &first, START, START).await;
        assert_eq!(accept(control, &first, "# 1\nja", START).await, "ok");
        publish(control, &second, later(100), START).await;
        let people = control.people(later(99)).await;
        assert!(people.has_consented(&person(1)));
        people.refresh(&control.database, later(100)).await.unwrap();
        assert_eq!(people.missing_consents(&person(1)), std::slice::from_ref(&second));
        assert_eq!(accept(control, &second, "# 2\nja", later(50)).await, "ok");
        people.refresh(&control.database, later(100)).await.unwrap();
        assert!(people.has_consented(&person(1)));
        assert_eq!(accept(control, &first, "# 1\nja", later(100)).await, "PolicyNotCurrent");
    }

    async fn text_is_found_by_the_closest_language(control) {
        // L-3
        let of = version(PolicyType::Terms, "1");
        publish(control, &of, START, START).await;
        for (asked, found) in [(None, "ja"), (Some("ja-JP"), "ja"), (Some("en"), "en"), (Some("fr"), "en")] {
            let (text, content) = policy::read(&control.database, &of, asked).await.unwrap().unwrap();
            assert_eq!((text.locale.as_str(), text.title.as_str()), (found, "1"), "{asked:?}");
            assert_eq!(text.content_hash, hash(&content));
        }
        let unknown = version(PolicyType::Terms, "9");
        assert_eq!(policy::read(&control.database, &unknown, None).await.unwrap(), None);
        assert_eq!(policy::current_texts(&control.database, START).await.unwrap().len(), 2);
    }
}
