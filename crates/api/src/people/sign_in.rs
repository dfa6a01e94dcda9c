//! `POST /v1/auth/challenge`, `POST /v1/auth/verify`, `DELETE /v1/auth/session`: signing in and out.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use kukuri_control::{sign_in, token};
use kukuri_domain::{Event, PublicKey, authentication::check_answer, nip19::parse_public_key};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Ended;
use crate::{
    ApiState,
    credentials::Session,
    error::{Error, ErrorBody},
    extract::Json as JsonBody,
};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewChallenge {
    /// The public key that signs in: hex or npub.
    pubkey: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Challenge {
    /// For the tag `challenge`.
    challenge: String,
    /// Until then it can be used, once.
    expires_at: u64,
}

/// Makes a challenge for a key.
#[utoipa::path(post, path = "/v1/auth/challenge", request_body = NewChallenge, responses(
    (status = 200, description = "A challenge.", body = Challenge),
))]
pub(crate) async fn make_challenge(
    State(api): State<Arc<ApiState>>,
    JsonBody(body): JsonBody<NewChallenge>,
) -> Result<Json<Challenge>, Error> {
    let pubkey = parse_public_key(&body.pubkey).map_err(|error| Error::invalid_parameter("pubkey", error))?;
    let made = sign_in::challenge(api.control.database(), &pubkey, api.now()).await?;
    Ok(Json(Challenge { challenge: made.challenge, expires_at: made.expires_at.0 }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChallengeAnswer {
    /// The signed event of kind 22242, with the tags `relay` and `challenge` (NIP-42); as an object, or as a string of its JSON.
    #[schema(value_type = Value)]
    auth_event_json: Box<RawValue>,
    /// For a new account, where the node asks for one.
    invite_code: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AccessToken {
    /// For `Authorization: Bearer`.
    access_token: String,
    /// `Bearer`
    token_type: &'static str,
    /// Until then it is valid.
    expires_at: u64,
    #[schema(value_type = String)]
    pubkey: PublicKey,
}

/// Takes the answer to a challenge, and makes an access token. The first time it makes the account.
#[utoipa::path(post, path = "/v1/auth/verify", request_body = ChallengeAnswer, responses(
    (status = 200, description = "An access token.", body = AccessToken),
    (status = 410, description = "The account is being deleted.", body = ErrorBody),
))]
pub(crate) async fn verify_answer(
    State(api): State<Arc<ApiState>>,
    JsonBody(body): JsonBody<ChallengeAnswer>,
) -> Result<Json<AccessToken>, Error> {
    let event = read_event(&body.auth_event_json)?;
    // Whether it is a challenge of this node is seen when it is used up.
    let answer = check_answer(&event, &(api.relay_urls)(), (api.clock)(), |_| true).map_err(Error::auth_failed)?;
    let (database, secrets, now) = (api.control.database(), api.control.secrets(), api.now());
    let invite_code = body.invite_code.as_deref();
    sign_in::sign_in(database, &secrets, &answer.pubkey, answer.challenge, invite_code, now).await?;
    api.control.refresh(now).await?;
    let token = token::issue(&secrets, &api.http_url(""), &answer.pubkey, now)?;
    Ok(Json(AccessToken {
        access_token: token.text,
        token_type: "Bearer",
        expires_at: token.expires_at.0,
        pubkey: answer.pubkey,
    }))
}

fn read_event(json: &RawValue) -> Result<Event, Error> {
    let text = json.get();
    let read = match text.starts_with('"') {
        true => serde_json::from_str::<String>(text).map(Event::from_json).map_err(|error| error.to_string()),
        false => Ok(Event::from_json(text)),
    };
    let refused = |reason: String| Error::invalid_parameter("auth_event_json", reason);
    read.map_err(refused)?.map_err(|refusal| refused(refusal.to_string()))
}

/// Ends the access token of the request.
#[utoipa::path(delete, path = "/v1/auth/session", responses(
    (status = 200, description = "The token is not valid any more.", body = Ended),
    (status = 400, description = "The request was signed (NIP-98), and has no token to end.", body = ErrorBody),
))]
pub(crate) async fn end_session(
    State(api): State<Arc<ApiState>>,
    session: Option<Extension<Session>>,
) -> Result<Json<Ended>, Error> {
    let Some(Extension(Session(claims))) = session else {
        return Err(Error::invalid("there is no token to end: send it as `Authorization: Bearer`"));
    };
    token::end(api.control.database(), &claims, api.now()).await?;
    api.control.refresh(api.now()).await?;
    Ok(Json(Ended::NOW))
}
