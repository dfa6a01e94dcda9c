//! The caller of a route that reads topics: whether it may read them, and whether that is counted.
//!
//! Where the node serves everybody, everybody may, and nothing is counted. Where it serves members only, the decision is the one that
//! clients on WebSocket get ([`kukuri_control::people::People::check_member`]).

use axum::{extract::FromRequestParts, http::request::Parts};
use kukuri_control::{people::MemberRefused, request::Service, token::Claims};
use kukuri_domain::{PublicKey, TopicId, Viewer};
use tower_http::request_id::RequestId;

use crate::{
    Api,
    credentials::{Session, consent_required},
    error::Error,
    gate::Identity,
};

/// The caller.
#[derive(Clone)]
pub(crate) struct Reader {
    identity: Identity,
    /// The token of the request, if it has one.
    claims: Option<Claims>,
    /// The id of the request, for its usage row.
    pub(crate) request_id: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Reader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let identity = Identity::from_request_parts(parts, state).await?;
        let session = parts.extensions.get::<Session>();
        let id = parts.extensions.get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
        Ok(Self { identity, claims: session.map(|Session(claims)| claims.clone()), request_id: id.map(str::to_owned) })
    }
}

impl Reader {
    /// Decides which private events the caller may see (E-10).
    pub(crate) fn viewer(&self) -> Viewer {
        self.identity.viewer()
    }

    /// Whether the caller may read these topics, or without any all topics, by a service. To be asked again while a stream lasts: a
    /// change counts at once.
    pub(crate) fn check(&self, api: &Api, topics: &[TopicId], service: Service) -> Result<(), Error> {
        let (people, is_for_members) = (api.control.people(), api.gate.serves_members_only());
        let Identity::Person(key) = &self.identity else {
            return if is_for_members { Err(Error::AuthRequired) } else { Ok(()) };
        };
        if let Some(claims) = &self.claims {
            people.check_token(claims)?;
        }
        if !is_for_members {
            return Ok(people.check_ban(key, api.now())?);
        }
        let is_for_everybody = |topic: &TopicId| api.gate.is_for_everybody(Some(topic));
        people.check_member(key, topics, service, is_for_everybody, api.now()).map_err(|refused| match refused {
            MemberRefused::Person(refused) => refused.into(),
            MemberRefused::ConsentRequired => consent_required(api, key),
            MemberRefused::SubscriptionRequired(topic) => {
                Error::SubscriptionRequired { topic: Some(topic), service: service.name() }
            }
        })?;
        if topics.is_empty() && !api.gate.is_for_everybody(None) {
            return Err(Error::SubscriptionRequired { topic: None, service: service.name() });
        }
        Ok(())
    }

    /// The member whose plan the request counts for, if it does.
    pub(crate) fn member(&self, api: &Api) -> Option<PublicKey> {
        match &self.identity {
            Identity::Person(key) if api.gate.serves_members_only() => Some(*key),
            _ => None,
        }
    }
}
