//! Templates of policies, which say what this node really keeps (L-4). The operator reads them, completes them and drafts them.

use std::time::Duration;

use kukuri_control::policy::PolicyType;
use kukuri_domain::retention::Keep;

use crate::config::{Settings, Switch};

/// The languages that there are templates in.
pub(super) const LANGUAGES: [&str; 2] = ["ja", "en"];

macro_rules! text {
    ($file:literal) => {
        include_str!(concat!("policy_template/", $file, ".md"))
    };
}

/// The template of a policy, filled from the configuration. What it does not say stands in brackets: 〔…〕.
pub(super) fn filled(policy_type: PolicyType, language: &str, settings: &Settings) -> String {
    let is_japanese = language == "ja";
    let template = match (policy_type, is_japanese) {
        (PolicyType::Terms, true) => text!("terms.ja"),
        (PolicyType::Terms, false) => text!("terms.en"),
        (PolicyType::Privacy, true) => text!("privacy.ja"),
        (PolicyType::Privacy, false) => text!("privacy.en"),
        (PolicyType::Rules, true) => text!("rules.ja"),
        (PolicyType::Rules, false) => text!("rules.en"),
    };
    let of = |ja: &str, en: &str| if is_japanese { ja.to_owned() } else { en.to_owned() };
    let retention = settings.retention();
    let kept = |keep: Keep| if is_japanese { kept_ja(keep) } else { kept_en(keep) };
    let is_shared = settings.gossip.enabled == Switch::On;
    let contact = settings.relay.contact.as_deref().map(|contact| contact.trim_start_matches("mailto:").to_owned());
    let url = settings.public_url.as_ref().map(|url| url.as_ref().to_owned());
    let values = [
        ("{name}", settings.relay.name.clone()),
        ("{url}", url.unwrap_or_else(|| of("〔ノードの URL〕", "〔the node's URL〕"))),
        (
            "{contact}",
            contact.unwrap_or_else(|| of("〔運営者の名前と連絡先〕", "〔name and contact of the operator〕")),
        ),
        ("{regular}", kept(retention.regular)),
        ("{current}", kept(retention.current)),
        ("{replaced}", kept(retention.replaced)),
        ("{requests}", kept(retention.requests)),
        ("{dedupe}", kept(retention.dedupe)),
        ("{outbox}", kept(retention.outbox)),
        ("{backups}", of("〔バックアップの保存期間〕", "〔how long back-ups are kept〕")),
        (
            "{gossip_clause}",
            match is_shared {
                true => of(
                    "、また同じトピックを扱うほかのノードに届ける",
                    ", and to pass it on to other nodes that carry the same topics",
                ),
                false => String::new(),
            },
        ),
        (
            "{gossip}",
            match is_shared {
                true => of(
                    "公開のイベントは、同じトピックを扱うほかのノードにも届けます。削除要求も同じように届けますが、ほかのノードや読者の手元から消えることは保証できません。",
                    "Public events are passed on to other nodes that carry the same topics. Deletion requests are passed on as well, but we can't make other nodes and readers delete their copies.",
                ),
                false => of(
                    "イベントをほかのノードに送ることはありません。ただし、読者の手元にある写しを消すことはできません。",
                    "Events are not passed on to other nodes. We can't delete copies that readers have made.",
                ),
            },
        ),
        (
            "{proxy_note}",
            match settings.proxy.header.is_some() {
                true => of(
                    "〔手前のプロキシが残すログについて書いてください〕",
                    "〔say what the proxy in front of the node logs〕",
                ),
                false => String::new(),
            },
        ),
    ];
    values.into_iter().fold(template.to_owned(), |text, (place, value)| text.replace(place, &value))
}

/// The largest unit in which a time is a whole number.
fn whole_units(time: Duration) -> (u64, usize) {
    let seconds = time.as_secs();
    let units = [86_400, 3_600, 60, 1];
    let unit = units.iter().position(|unit| seconds.is_multiple_of(*unit)).unwrap_or(3);
    (seconds / units[unit], unit)
}

fn kept_ja(keep: Keep) -> String {
    match keep {
        Keep::Forever => "期限なし".to_owned(),
        Keep::For(time) => {
            let (number, unit) = whole_units(time);
            format!("{number} {}", ["日", "時間", "分", "秒"][unit])
        }
    }
}

fn kept_en(keep: Keep) -> String {
    match keep {
        Keep::Forever => "without limit".to_owned(),
        Keep::For(time) => {
            let (number, unit) = whole_units(time);
            let plural = if number == 1 { "" } else { "s" };
            format!("{number} {}{plural}", ["day", "hour", "minute", "second"][unit])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Foreign;

    #[test]
    fn every_template_is_filled_from_the_configuration() {
        // L-4
        let mut settings = Settings::default();
        settings.relay.name = "Tea house".to_owned();
        settings.relay.contact = Some("mailto:tea@example.com".to_owned());
        settings.retention.regular = Foreign(Keep::For(Duration::from_secs(36 * 3_600)));
        for language in LANGUAGES {
            for policy_type in PolicyType::ALL {
                let text = filled(policy_type, language, &settings);
                assert!(!text.contains(['{', '}']), "{text}");
                assert!(
                    text.starts_with("# ") && text.contains("Tea house") && text.contains("tea@example.com"),
                    "{text}"
                );
                assert!(!text.contains("mailto:"), "{text}");
            }
            let privacy = filled(PolicyType::Privacy, language, &settings);
            let expected = if language == "ja" {
                ["36 時間", "7 日", "期限なし"]
            } else {
                ["36 hours", "7 days", "without limit"]
            };
            assert!(expected.iter().all(|part| privacy.contains(part)), "{privacy}");
            assert_eq!(privacy.matches('〔').count(), 2, "address and back-ups: {privacy}");
        }
    }

    #[test]
    fn node_without_gossip_says_that_it_passes_nothing_on() {
        let mut settings = Settings::default();
        settings.gossip.enabled = Switch::Off;
        let text = filled(PolicyType::Privacy, "en", &settings);
        assert!(text.contains("Events are not passed on to other nodes."), "{text}");
        let text = filled(PolicyType::Terms, "ja", &settings);
        assert!(!text.contains("ほかのノードに届ける"), "{text}");
    }
}
