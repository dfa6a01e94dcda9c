//! Names of topics (S-8).

use kukuri_control::topic_name::{self, NamedTopic};
use kukuri_domain::{TopicId, topic::TopicRules};

use crate::support::{Control, on_both};

fn topic_of(name: &str) -> TopicId {
    TopicId::from_name("kukuri:test:", name, &TopicRules::default()).unwrap()
}

async fn keep(control: &Control, names: &[&str]) {
    for name in names {
        topic_name::keep(&control.database, &topic_of(name), name).await.unwrap();
    }
}

fn names(found: Vec<NamedTopic>) -> Vec<String> {
    found.into_iter().map(|topic| topic.name).collect()
}

on_both! {
    async fn names_are_listed_in_pages_and_found_by_a_part(control) {
        keep(control, &["tea", "Green Tea", "100% milk", "ramen!", "under_score", "お茶"]).await;
        let database = &control.database;
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = topic_name::list(database, None, after, 2).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.folded_name.clone(), last.topic.to_string()));
            seen.extend(names(page));
        }
        seen.sort();
        assert_eq!(seen, ["100% milk", "Green Tea", "ramen!", "tea", "under_score", "お茶"], "each once");
        for (part, expected) in [
            ("TEA", vec!["Green Tea", "tea"]),
            ("0%", vec!["100% milk"]),
            ("%", vec!["100% milk"]),
            ("_", vec!["under_score"]),
            ("!", vec!["ramen!"]),
            ("茶", vec!["お茶"]),
            ("'", vec![]),
        ] {
            assert_eq!(names(topic_name::list(database, Some(part), None, 10).await.unwrap()), expected, "{part}");
        }
    }

    async fn names_that_begin_with_the_text_come_first(control) {
        keep(control, &["a tea", "tea", "tearoom", "coffee"]).await;
        let suggest = async |text, limit| names(topic_name::suggest(&control.database, text, limit).await.unwrap());
        assert_eq!(suggest("Te", 10).await, ["tea", "tearoom", "a tea"]);
        assert_eq!(suggest("te", 1).await, ["tea"]);
    }

    async fn operator_decides_how_a_name_is_written(control) {
        keep(control, &["tea", "TEA"]).await;
        let unknown = TopicId::global();
        let found = topic_name::of_topics(&control.database, &[unknown, topic_of("Tea")]).await.unwrap();
        assert_eq!(found, [None, Some("TEA".to_owned())]);
    }
}
