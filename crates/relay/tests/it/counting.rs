//! NIP-45: the number of matching events, and a HyperLogLog of their authors (W-6).

use crate::support::{TOPIC, TestRelay, draft, id_of, key_of, note, now, topic};
use kukuri_domain::topic::TopicsMode;
use serde_json::{Value, json};

#[tokio::test]
async fn count_counts_each_matching_event_once_and_ignores_limits() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| config.requests.limit = 3).await;
    let mut client = relay.client().await;
    let start = now() - 100;
    for number in 0..10 {
        client.accepted(&note(1 + number % 3, &number.to_string()).at(start + u64::from(number)).sign()).await;
    }
    let gone = note(1, "gone").sign();
    client.accepted(&gone).await;
    client.accepted(&draft(1, 5).tag(["t", TOPIC]).tag(["e", &id_of(&gone)]).sign()).await;
    client.accepted(&draft(1, 4).tag(["t", TOPIC]).tag(["p", &key_of(2)]).sign()).await;

    let mine = |mut filter: Value| {
        filter["#t"] = json!([TOPIC]);
        filter
    };
    for (filters, count, why) in [
        (vec![mine(json!({"kinds": [1]}))], 10, "more than any answer would hold"),
        (vec![mine(json!({"kinds": [1], "limit": 2}))], 10, "a limit is for answers"),
        (vec![mine(json!({"authors": [key_of(1)], "kinds": [1]}))], 4, "by author"),
        (vec![mine(json!({"since": start + 5, "until": start + 7}))], 3, "by time, both ends included"),
        (vec![mine(json!({"ids": [gone.id]}))], 0, "what is deleted does not count"),
        (vec![mine(json!({"kinds": []}))], 0, "an empty list matches nothing"),
        (vec![mine(json!({"kinds": [4]}))], 0, "E-10: what a stranger can not see is not counted for it"),
        (vec![mine(json!({}))], 11, "the notes and the deletion"),
        (
            vec![mine(json!({"authors": [key_of(1)], "kinds": [1]})), mine(json!({"until": start + 1}))],
            5,
            "an event that two filters match counts once",
        ),
        (vec![json!({"#t": [topic(2)]})], 0, "another topic"),
    ] {
        let message: Vec<Value> = [json!("COUNT"), json!("c")].into_iter().chain(filters).collect();
        assert_eq!(client.tell(json!(message)).await, json!(["COUNT", "c", {"count": count}]), "{why}");
    }
    for (message, reason) in [
        (json!(["COUNT", "c"]), "invalid: a request has at least one filter"),
        (json!(["COUNT", "c", {}]), "invalid: #t must name topics"),
        (json!(["COUNT", "c", {"#t": [TOPIC], "ids": ["x"]}]), "invalid: "),
    ] {
        let heard = client.tell(message).await;
        assert_eq!((&heard[0], &heard[1]), (&json!("CLOSED"), &json!("c")));
        assert!(heard[2].as_str().unwrap().starts_with(reason), "{heard}");
    }
    assert_eq!(client.authenticate(2, &relay.url).await, (true, String::new()));
    let heard = client.tell(json!(["COUNT", "c", {"#t": [TOPIC], "kinds": [4]}])).await;
    assert_eq!(heard, json!(["COUNT", "c", {"count": 1}]), "a party to it counts it");
}

/// The registers by the text of NIP-45: a byte of each key selects a register, which holds the number of zero bits
/// after that byte, plus one.
fn registers(offset: usize, authors: &[u8]) -> String {
    let mut registers = [0u8; 256];
    for author in authors {
        let key = key_of(*author);
        let bytes: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&key[2 * at..2 * at + 2], 16).unwrap()).collect();
        let bits: String = bytes[offset + 1..offset + 9].iter().map(|byte| format!("{byte:08b}")).collect();
        let zeros = bits.find('1').unwrap_or(bits.len());
        let register = &mut registers[usize::from(bytes[offset])];
        *register = (*register).max(zeros as u8 + 1);
    }
    registers.iter().map(|register| format!("{register:02x}")).collect()
}

#[tokio::test]
async fn hyperloglog_holds_the_authors_and_takes_its_offset_from_the_filter() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let post = note(1, "a popular one").sign();
    let fans: Vec<u8> = (10..60).collect();
    for fan in &fans {
        let like = draft(*fan, 7).tag(["t", TOPIC]).tag(["e", &id_of(&post)]).tag(["p", &key_of(1)]);
        client.accepted(&like.clone().content("+").sign()).await;
        if fan % 2 == 0 {
            client.accepted(&like.content("++").sign()).await;
        }
    }
    // NIP-45's offset: the hex digit at position 32 of the first tag's value, plus 8.
    let digit = |hex: &str| usize::from_str_radix(&hex[32..33], 16).unwrap() + 8;
    let (by_post, by_author) = (digit(&id_of(&post)), digit(&key_of(1)));
    let (post, author, address) = (id_of(&post), key_of(1), format!("30023:{}:d", key_of(1)));
    for (filter, sketch, count, why) in [
        (format!(r##"{{"#e":["{post}"],"#t":["{TOPIC}"],"kinds":[7]}}"##), Some((by_post, &fans[..])), 75, "an id"),
        (format!(r##"{{"#t":["{TOPIC}"],"#e":["{post}"],"kinds":[7]}}"##), Some((by_post, &fans[..])), 75, "W-6"),
        (format!(r##"{{"#t":["{TOPIC}"],"#p":["{author}"]}}"##), Some((by_author, &fans[..])), 75, "a key"),
        (
            format!(r##"{{"#t":["{TOPIC}"],"#p":["{author}"],"#e":["{post}"]}}"##),
            Some((by_author, &fans[..])),
            75,
            "the first",
        ),
        (
            format!(r##"{{"#t":["{TOPIC}"],"#a":["{address}"]}}"##),
            Some((by_author, &[][..])),
            0,
            "an address, and nobody",
        ),
        (format!(r##"{{"#t":["{TOPIC}"],"kinds":[7]}}"##), None, 75, "topics alone: there is no offset"),
    ] {
        client.say_text(format!(r#"["COUNT","c",{filter}]"#)).await;
        let heard = client.hear().await;
        assert_eq!(heard[2]["count"], count, "{why}: {heard}");
        let expected = sketch.map(|(offset, authors)| registers(offset, authors));
        assert_eq!(heard[2].get("hll").and_then(Value::as_str), expected.as_deref(), "{why}");
    }
    let one = json!({"#t": [TOPIC], "#e": [post]});
    let heard = client.tell(json!(["COUNT", "c", one, one])).await;
    assert_eq!(heard[2], json!({"count": 75}), "several filters have no sketch");
}
