//! `policy`: terms, privacy policy and house rules.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use kukuri_control::{
    Control,
    actions::{DraftPolicy, PublishPolicy},
    policy::{self, PolicyText, PolicyType, PolicyVersion, Published},
};
use serde_json::json;

use super::{
    people::{Lines, as_lines, named, now, perform, time},
    policy_template::{LANGUAGES, filled},
    table::{fields, moment, one_line, table},
};
use crate::{config::Settings, output, wiring};

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Lists the texts of all versions, the newest version of each type first.
    List(Lines),
    /// Prints a text.
    Show {
        #[command(flatten)]
        version: Version,
        /// The language, such as ja, en or en-GB; if the version has no such text, the closest one [default: ja].
        #[arg(long)]
        locale: Option<String>,
    },
    /// Prints a text to begin with, in Markdown: what it says of the node is from the configuration. Complete what stands in 〔〕.
    Template {
        /// The type: terms, privacy or rules.
        #[arg(value_name = "TYPE")]
        policy_type: String,
        /// The language: ja or en.
        #[arg(long)]
        locale: String,
    },
    /// Writes a text of a version that is not published, or replaces it.
    Draft {
        #[command(flatten)]
        version: Version,
        /// The language, such as ja, en or en-GB.
        #[arg(long)]
        locale: String,
        /// A file with the text, in Markdown. Its first heading is the title.
        #[arg(long)]
        file: PathBuf,
    },
    /// Publishes a version with all its texts. It can't be changed afterwards.
    Publish {
        #[command(flatten)]
        version: Version,
        /// When it takes effect, such as 2030-01-31T12:00:00Z [default: at once].
        #[arg(long, value_name = "TIME")]
        effective: Option<String>,
    },
}

/// A version of a policy.
#[derive(Args)]
pub(crate) struct Version {
    /// The type: terms, privacy or rules.
    #[arg(value_name = "TYPE")]
    policy_type: String,
    /// The version, such as 1 or 2030-01.
    version: String,
}

impl Version {
    fn parse(&self) -> anyhow::Result<PolicyVersion> {
        let policy_type = named("TYPE", &self.policy_type, PolicyType::ALL, PolicyType::name)?;
        Ok(PolicyVersion::new(policy_type, &self.version)?)
    }
}

pub(crate) async fn run(settings: &Settings, command: PolicyCommand) -> anyhow::Result<()> {
    let open = || wiring::control::for_command(settings);
    match command {
        PolicyCommand::List(lines) => list(&*open().await?, &lines).await,
        PolicyCommand::Show { version, locale } => {
            let of = version.parse()?;
            show(&*open().await?, &of, locale.as_deref()).await
        }
        PolicyCommand::Template { policy_type, locale } => {
            let policy_type = named("TYPE", &policy_type, PolicyType::ALL, PolicyType::name)?;
            let language = named("--locale", &locale, LANGUAGES, |language| language)?;
            output::print(&filled(policy_type, language, settings))
        }
        PolicyCommand::Draft { version, locale, file } => {
            let action = DraftPolicy { of: version.parse()?, locale, content: read(&file)? };
            let PolicyText { of, locale, title, .. } = perform(&*open().await?, action).await?;
            let PolicyVersion { policy_type, version } = of;
            output::print(&format!("{policy_type} {version} ({locale}) is drafted: {}\n", one_line(&title)))
        }
        PolicyCommand::Publish { version, effective } => {
            let of = version.parse()?;
            let effective_at = effective.map(|text| time("--effective", &text)).transpose()?;
            publish(&*open().await?, PublishPolicy { of, effective_at }).await
        }
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| file.display().to_string())
}

async fn publish(control: &Control, action: PublishPolicy) -> anyhow::Result<()> {
    let PolicyVersion { policy_type, version } = action.of.clone();
    let effective_at = perform(control, action).await?;
    let consent = match policy_type.needs_consent() {
        true => "Members have to accept it from then on.\n",
        false => "",
    };
    let from = moment(effective_at);
    output::print(&format!("{policy_type} {version} is published and takes effect at {from}\n{consent}"))
}

async fn list(control: &Control, lines: &Lines) -> anyhow::Result<()> {
    let texts = policy::list(control.database()).await?;
    let published = policy::published(control.database(), now()).await?;
    if lines.json {
        return output::print(&as_lines(texts.iter().map(|text| as_value(text, &published))));
    }
    let rows = texts.iter().map(|text| {
        [
            text.of.policy_type.to_string(),
            text.of.version.clone(),
            text.locale.clone(),
            state(text, &published).to_owned(),
            text.effective_at.map(moment).unwrap_or_default(),
            one_line(&text.title),
        ]
    });
    output::print(&table(["type", "version", "locale", "state", "in effect from", "title"], rows))
}

fn state(text: &PolicyText, published: &Published) -> &'static str {
    if text.published_at.is_none() {
        "draft"
    } else if published.current.contains(&text.of) {
        "current"
    } else if published.coming.iter().any(|(version, _)| *version == text.of) {
        "coming"
    } else {
        "past"
    }
}

fn as_value(text: &PolicyText, published: &Published) -> serde_json::Value {
    json!({
        "type": text.of.policy_type.name(),
        "version": text.of.version,
        "locale": text.locale,
        "title": text.title,
        "content_hash": text.content_hash,
        "state": state(text, published),
        "published_at": text.published_at.map(|time| time.0),
        "effective_at": text.effective_at.map(|time| time.0),
    })
}

async fn show(control: &Control, of: &PolicyVersion, locale: Option<&str>) -> anyhow::Result<()> {
    let Some((text, content)) = policy::read(control.database(), of, locale).await? else {
        bail!("there is no {} {}", of.policy_type, of.version)
    };
    let time = |time: Option<_>| time.map_or_else(|| "not published".to_owned(), moment);
    let lines = [
        ("policy", format!("{} {}", of.policy_type, of.version)),
        ("locale", text.locale),
        ("published", time(text.published_at)),
        ("in effect from", time(text.effective_at)),
        ("content hash", text.content_hash),
    ];
    let end = if content.ends_with('\n') { "" } else { "\n" };
    output::print(&format!("{}\n{content}{end}", fields(&lines)))
}
