//! `GET /v1/consents/status`, `POST /v1/consents`: what the caller has accepted, and has to accept (L-2, L-3).

use std::sync::Arc;

use axum::{Json, extract::State};
use kukuri_control::{
    consent::{self, Acceptance, Consent},
    policy::{self, PolicyType, PolicyVersion},
};
use kukuri_domain::PublicKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::policies::url_of;
use crate::{
    Api, ApiState,
    credentials::Caller,
    error::{Error, ErrorBody, RequiredPolicy},
    extract::{Json as JsonBody, shortened},
};

/// Hex digits of a hash of a text.
const HASH_LEN: usize = 64;

#[derive(Serialize, ToSchema)]
pub(crate) struct ConsentStatus {
    accepted: Vec<AcceptedPolicy>,
    /// In effect, and not accepted.
    missing: Vec<RequiredPolicy>,
    /// In effect later, and not accepted.
    coming: Vec<ComingPolicy>,
}

#[derive(Serialize, ToSchema)]
struct AcceptedPolicy {
    #[serde(rename = "type")]
    policy_type: &'static str,
    version: String,
    /// The language of the text that was shown.
    locale: String,
    content_hash: String,
    accepted_at: u64,
}

#[derive(Serialize, ToSchema)]
struct ComingPolicy {
    #[serde(rename = "type")]
    policy_type: &'static str,
    version: String,
    url: String,
    effective_at: u64,
}

impl From<Consent> for AcceptedPolicy {
    fn from(consent: Consent) -> Self {
        Self {
            policy_type: consent.of.policy_type.name(),
            version: consent.of.version,
            locale: consent.locale,
            content_hash: consent.content_hash,
            accepted_at: consent.accepted_at.0,
        }
    }
}

async fn status_of(api: &Api, person: &PublicKey) -> Result<Json<ConsentStatus>, Error> {
    let database = api.control.database();
    let accepted = consent::list(database, person).await?;
    let published = policy::published(database, api.now()).await?;
    let missing = consent::missing(&published, &accepted);
    let is_open = |version: &PolicyVersion| {
        version.policy_type.needs_consent() && !accepted.iter().any(|consent| consent.of == *version)
    };
    let coming = published.coming.iter().filter(|(version, _)| is_open(version));
    let coming = coming.map(|(version, effective_at)| ComingPolicy {
        policy_type: version.policy_type.name(),
        version: version.version.clone(),
        url: url_of(api, version),
        effective_at: effective_at.0,
    });
    Ok(Json(ConsentStatus {
        coming: coming.collect(),
        missing: missing.iter().map(|policy| RequiredPolicy::of(api, policy)).collect(),
        accepted: accepted.into_iter().map(AcceptedPolicy::from).collect(),
    }))
}

/// What the caller has accepted, and has to accept.
#[utoipa::path(get, path = "/v1/consents/status", responses(
    (status = 200, description = "The caller's consents.", body = ConsentStatus),
))]
pub(crate) async fn read_consents(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
) -> Result<Json<ConsentStatus>, Error> {
    status_of(&api, &person).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewConsents {
    /// Versions in effect, or published to take effect later; at least one.
    accept: Vec<AcceptedText>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AcceptedText {
    /// `terms` or `privacy`.
    #[serde(rename = "type")]
    policy_type: String,
    version: String,
    /// Of the text that was shown, in any language.
    content_hash: String,
}

impl AcceptedText {
    fn read(self, at: usize) -> Result<Acceptance, Error> {
        let refused = |field: &str, reason: &str| Error::invalid_parameter(&format!("accept[{at}].{field}"), reason);
        let policy_type = PolicyType::of_name(&self.policy_type).filter(|of| of.needs_consent());
        let policy_type = policy_type.ok_or_else(|| {
            refused("type", &format!("expected terms or privacy, got `{}`", shortened(&self.policy_type)))
        })?;
        let of = PolicyVersion::new(policy_type, &self.version)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if self.content_hash.len() != HASH_LEN || !self.content_hash.bytes().all(is_digit) {
            return Err(refused("content_hash", "expected 64 lower-case hex digits"));
        }
        Ok(Acceptance { of, content_hash: self.content_hash })
    }
}

/// Accepts policies: all of these or none. Accepting one again changes nothing.
#[utoipa::path(post, path = "/v1/consents", request_body = NewConsents, responses(
    (status = 200, description = "The caller's consents now.", body = ConsentStatus),
    (status = 409, description = "One is not in effect, or the hash is not that of a text of it.", body = ErrorBody),
))]
pub(crate) async fn give_consents(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    JsonBody(body): JsonBody<NewConsents>,
) -> Result<Json<ConsentStatus>, Error> {
    let acceptances = body.accept.into_iter().enumerate().map(|(at, text)| text.read(at));
    let acceptances: Vec<Acceptance> = acceptances.collect::<Result<_, _>>()?;
    consent::accept(api.control.database(), &person, &acceptances, api.now()).await?;
    api.control.refresh(api.now()).await?;
    status_of(&api, &person).await
}
