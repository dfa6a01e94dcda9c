//! Members: where clients have to authenticate, an account, consents and subscriptions are asked for on reads and writes alike (S-5).

use std::sync::Arc;

use kukuri_control::{Control, Refused, people::MemberRefused, request::Service};
use kukuri_domain::{Event, Filter, Kind, Letter, PublicKey, TopicId, admission::Screened, topic::TopicValue};
use kukuri_engine::{
    Client, PublishRefused, ReadRefused,
    live::LiveSubscription,
    policies::{Context, Policy, ReadRequest},
    refused::PersonRefused,
};

/// Where policies are read, below the node's URL.
const POLICIES_PATH: &str = "/v1/policies/current";

/// Serves members only, where clients have to authenticate.
pub struct MemberPolicy(pub Arc<Control>);

/// What a client asks for, as far as topics are concerned.
struct Asked<'t> {
    topics: &'t [TopicId],
    service: Service,
}

impl MemberPolicy {
    /// Whether the client has to be a member: not before enforcement begins, nor within the grace of an older connection.
    pub(crate) fn is_for_members(context: &Context<'_>, client: &Client) -> bool {
        !client.keys.is_empty() && context.config.auth.is_demanded(client.connected_at, context.now)
    }

    /// The key of the client that may do all of what is asked for: the last one that may. Else, why the last of all may not. A client
    /// without keys is not asked.
    fn check(&self, context: &Context<'_>, client: &Client, asked: &Asked<'_>) -> Result<PublicKey, PersonRefused> {
        self.first_entitled(context, client.keys.iter().rev(), asked)
    }

    fn first_entitled<'k>(
        &self,
        context: &Context<'_>,
        keys: impl Iterator<Item = &'k PublicKey>,
        asked: &Asked<'_>,
    ) -> Result<PublicKey, PersonRefused> {
        let mut refused = Err(PersonRefused::AccountInactive);
        for (tried, key) in keys.enumerate() {
            match self.check_key(context, key, asked) {
                Ok(()) => return Ok(*key),
                Err(reason) if tried == 0 => refused = Err(reason),
                Err(_) => {}
            }
        }
        refused
    }

    /// The member who publishes an event: its author, if that is a key of the client and may, or another of its keys that may.
    pub(crate) fn publisher(&self, context: &Context<'_>, client: &Client, event: &Event) -> Option<PublicKey> {
        let rules = &context.config.admission.topics;
        let topics = rules.bind(event).ok()?;
        let author = client.keys.iter().filter(|key| **key == event.pubkey);
        let asked = Asked { topics: &topics, service: Service::Relay };
        self.first_entitled(context, author.chain(client.keys.iter().rev()), &asked).ok()
    }

    fn check_key(&self, context: &Context<'_>, key: &PublicKey, asked: &Asked<'_>) -> Result<(), PersonRefused> {
        let is_for_everybody = |topic: &TopicId| context.is_for_everybody(topic);
        let people = self.0.people();
        let checked = people.check_member(key, asked.topics, asked.service, is_for_everybody, context.now.seconds());
        checked.map_err(|refused| match refused {
            MemberRefused::Person(Refused::UnknownAccount) => PersonRefused::NoAccount { url: policies_url(context) },
            MemberRefused::Person(Refused::Banned { reason, .. }) => PersonRefused::Banned { reason },
            MemberRefused::Person(_) => PersonRefused::AccountInactive,
            MemberRefused::ConsentRequired => PersonRefused::ConsentRequired { url: policies_url(context) },
            MemberRefused::SubscriptionRequired(topic) => PersonRefused::SubscriptionRequired { topic },
        })
    }

    /// The key of the client that may read what a filter asks for.
    pub(crate) fn check_filter(
        &self,
        context: &Context<'_>,
        client: &Client,
        filter: &Filter,
    ) -> Result<PublicKey, PersonRefused> {
        let read = |value: &str| match context.config.admission.topics.read(value) {
            TopicValue::Topic(topic) => Some(topic),
            // A hashtag reads events of any topic.
            TopicValue::Hashtag | TopicValue::Malformed => None,
        };
        let values = filter.tag_values(Letter::T);
        let topics: Option<Vec<TopicId>> = values.and_then(|values| values.iter().map(|value| read(value)).collect());
        let topics = match topics {
            Some(topics) => topics,
            None if context.are_all_topics_for_everybody() => Vec::new(),
            None => return Err(PersonRefused::FilterWithoutTopic),
        };
        let service = if filter.search().is_some() { Service::Index } else { Service::Relay };
        self.check(context, client, &Asked { topics: &topics, service })
    }
}

fn policies_url(context: &Context<'_>) -> String {
    context.config.admission.relay_urls.http_url() + POLICIES_PATH
}

impl Policy for MemberPolicy {
    fn check_read(&self, context: &Context<'_>, request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        if !Self::is_for_members(context, request.client) {
            return Ok(());
        }
        // The rest of a reconciliation has the filter of its beginning.
        if request.filters.is_empty() {
            self.check(context, request.client, &Asked { topics: &[], service: Service::Relay })?;
            return Ok(());
        }
        let check = |filter| self.check_filter(context, request.client, filter).map(drop);
        Ok(request.filters.iter().try_for_each(check)?)
    }

    fn check_live(&self, context: &Context<'_>, client: &Client, live: &LiveSubscription) -> Result<(), ReadRefused> {
        if !Self::is_for_members(context, client) {
            return Ok(());
        }
        Ok(live.filters().iter().try_for_each(|filter| self.check_filter(context, client, filter).map(drop))?)
    }

    fn check_new_event(
        &self,
        context: &Context<'_>,
        screened: &Screened,
        client: Option<&Client>,
    ) -> Result<(), PublishRefused> {
        let Some(client) = client.filter(|client| Self::is_for_members(context, client)) else { return Ok(()) };
        // Whoever leaves a topic, or does not agree to new terms, may still take back what is theirs.
        if matches!(screened.event().kind, Kind::DELETION | Kind::VANISH) {
            return Ok(());
        }
        self.check(context, client, &Asked { topics: screened.topics(), service: Service::Relay })?;
        Ok(())
    }
}
